"""Does what many users of one bucket do at the same time, and checks that each could have been the only one.

    s3-histories.py URL[,URL...] SECONDS SEED

Rounds of operations on one key (put, put if absent, put if unchanged, copy, multipart upload, delete, get, head, list) are made by
several tasks with boto3, each with any of the gateways. A round is right if its operations have an order in which every answer is what a
single register would say, and which no operation leaves that had ended before another one began (linearizability: Herlihy and Wing,
1990). An operation that failed with 5xx or without an answer may have taken effect or not. Buckets with and without versions are
used in turns; no version that was answered may be missing from the list. The exit status is 1 if something is wrong.
"""

import concurrent.futures, hashlib, random, sys, time
import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

TASKS, EACH = 6, 3
SIZES = [0, 1, 17, 4096, 30_000, 200_000, 1_500_000]
KINDS = ["put"] * 4 + ["create", "swap", "upload", "copy"] * 2 + ["delete", "list", "head"] * 3 + ["get"] * 4
CHANGES = ("put", "create", "swap", "upload", "copy")
LOOKS = ("get", "head", "list")
FAILED, UNSURE = "failed", "unsure"


def status(error):
    return error.response["ResponseMetadata"]["HTTPStatusCode"]


def md5(data):
    return hashlib.md5(data).hexdigest()


def joined(data):
    """The tag of an upload of one part."""
    return md5(hashlib.md5(data).digest()) + "-1"


class Operation:
    def __init__(self, kind, key, before, source, random_):
        self.kind, self.key, self.before = kind, key, before
        size, seed = random_.choice(SIZES), random_.randbytes(16)
        self.body = (seed * (size // 16 + 1))[:size]
        self.tag = {"upload": joined(self.body), "copy": source, "delete": None}.get(kind, md5(self.body))
        self.version = None

    def run(self, s3, bucket):
        """Does it, and notes what was answered: a tag, None for an absent object, FAILED or UNSURE."""
        self.begun = time.monotonic()
        try:
            self.answer = self.call(s3, {"Bucket": bucket, "Key": self.key})
        except ClientError as error:
            absent = status(error) == 404 and self.kind in LOOKS
            self.answer = None if absent else FAILED if 400 <= status(error) < 500 else UNSURE
            self.status, self.code = status(error), error.response["Error"]["Code"]
        except BotoCoreError as error:
            self.answer, self.status = UNSURE, type(error).__name__
        self.ended = time.monotonic()

    def call(self, s3, at):
        if self.kind == "list":
            found = s3.list_objects_v2(Bucket=at["Bucket"], Prefix=at["Key"]).get("Contents", [])
            return next((o["ETag"].strip('"') for o in found if o["Key"] == at["Key"]), None)
        if self.kind == "get":
            got = s3.get_object(**at)
            data, tag = got["Body"].read(), got["ETag"].strip('"')
            if tag not in (md5(data), joined(data)):
                sys.exit(f"{at}: {len(data)} bytes that are not those of {tag}")
            return tag
        if self.kind == "upload":
            upload = s3.create_multipart_upload(**at)["UploadId"]
            part = s3.upload_part(**at, UploadId=upload, PartNumber=1, Body=self.body)
            parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
            got = s3.complete_multipart_upload(**at, UploadId=upload, MultipartUpload=parts)
        else:
            got = {
                "put": lambda: s3.put_object(**at, Body=self.body),
                "create": lambda: s3.put_object(**at, Body=self.body, IfNoneMatch="*"),
                "swap": lambda: s3.put_object(**at, Body=self.body, IfMatch=f'"{self.before}"'),
                "copy": lambda: s3.copy_object(**at, CopySource={"Bucket": at["Bucket"], "Key": "source"}),
                "delete": lambda: s3.delete_object(**at),
                "head": lambda: s3.head_object(**at),
            }[self.kind]()
        self.version = got.get("VersionId")
        return got.get("CopyObjectResult", got).get("ETag", "").strip('"') or None

    def outcomes(self, value):
        """What a register with this value may have afterwards, given the answer; nothing if that cannot be the answer."""
        met = {"create": value is None, "swap": value == self.before}.get(self.kind, True)
        if self.kind in LOOKS:
            return [value] if self.answer in (value, UNSURE) else []
        if self.answer == UNSURE:
            return [value, self.tag] if met else [value]
        if self.answer == FAILED:
            # 409: others came between; tried again it would do. A put without a condition has no other reason to fail.
            return [value] if self.status == 409 or (not met and self.kind in ("create", "swap")) else []
        return [self.tag] if met and self.answer == self.tag else []

    def __str__(self):
        shown = f"{self.answer} {getattr(self, 'status', '')} {getattr(self, 'code', '')}"
        return f"{self.begun:.4f} to {self.ended:.4f}  {self.kind} {self.tag if self.kind not in LOOKS else ''}: {shown}"


def explained(operations, first, last):
    """Whether there is an order."""
    whole, seen, open_ = (1 << len(operations)) - 1, set(), [(0, first)]
    while open_:
        state = done, value = open_.pop()
        if state in seen:
            continue
        seen.add(state)
        if done == whole:
            if value == last:
                return True
            continue
        rest = [i for i in range(len(operations)) if not done >> i & 1]
        soonest = min(operations[i].ended for i in rest)
        for i in rest:
            if operations[i].begun <= soonest:
                open_ += [(done | 1 << i, after) for after in operations[i].outcomes(value)]
    return False


def surely(call):
    """Repeats what changes nothing, or the same if it is done twice, until there is an answer."""
    for _ in range(200):
        try:
            return call()
        except ClientError as error:
            if status(error) < 500:
                raise
        except BotoCoreError:
            pass
        time.sleep(0.3)
    sys.exit("no answer for a minute")


def now(s3, bucket, key):
    try:
        return surely(lambda: s3.head_object(Bucket=bucket, Key=key))["ETag"].strip('"')
    except ClientError as error:
        if status(error) != 404:
            raise
        return None


def main():
    urls, seconds, seed = sys.argv[1].split(","), float(sys.argv[2]), int(sys.argv[3])
    random_ = random.Random(seed)
    config = Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}, max_pool_connections=2 * TASKS)
    gateways = [boto3.client("s3", endpoint_url=url, region_name="us-east-1", config=config) for url in urls]
    tasks = concurrent.futures.ThreadPoolExecutor(TASKS)
    buckets, versions = ["histories-plain", "histories-versioned"], {}
    for bucket in buckets:
        surely(lambda: gateways[0].create_bucket(Bucket=bucket))
        surely(lambda: gateways[0].put_object(Bucket=bucket, Key="source", Body=b"source"))
    surely(lambda: gateways[0].put_bucket_versioning(Bucket=buckets[1], VersioningConfiguration={"Status": "Enabled"}))
    end, rounds, operations, unsure, wrong = time.monotonic() + seconds, 0, 0, 0, 0
    while time.monotonic() < end:
        bucket, key = buckets[rounds % 2], f"key/{random_.randrange(6)}"
        before = now(gateways[0], bucket, key)
        kinds = KINDS if before else [kind for kind in KINDS if kind != "swap"]
        plans = [
            [(Operation(random_.choice(kinds), key, before, md5(b"source"), random_), random_.choice(gateways)) for _ in range(EACH)]
            for _ in range(TASKS)
        ]
        list(tasks.map(lambda plan: [operation.run(s3, bucket) for operation, s3 in plan], plans))
        made = [operation for plan in plans for operation, _ in plan]
        after = {now(s3, bucket, key) for s3 in gateways}
        if len(after) > 1 or not explained(made, before, *after):
            wrong += 1
            print(f"{bucket}/{key}: there is no order from {before} to {after}")
            print(*sorted(map(str, made)), sep="\n")
        if bucket == buckets[1]:
            known = versions.setdefault(key, {})
            known.update((made.version, made.tag) for made in made if made.version and made.kind in CHANGES)
            pages = gateways[0].get_paginator("list_object_versions")
            listed = surely(lambda: [v for page in pages.paginate(Bucket=bucket, Prefix=key) for v in page.get("Versions", [])])
            if lost := known.items() - {(v["VersionId"], v["ETag"].strip('"')) for v in listed}:
                wrong += 1
                print(f"{bucket}/{key}: versions are missing: {lost}")
        rounds, operations = rounds + 1, operations + len(made)
        unsure += sum(operation.answer == UNSURE for operation in made)
    print(f"{operations} operations in {rounds} rounds, {unsure} without a sure answer; {wrong} rounds wrong")
    sys.exit(wrong > 0)


main()
