"""Writes the outcome of Ceph's s3-tests as a list: s3-tests-list.py TESTS RESULT EXCLUDED-MARKS COMMIT DATE."""

import ast
import collections
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

tests, result, marks, kintsu, date = sys.argv[1:]
marks = marks.split(" or ")

# The files of tests that are run.
FILES = ("test_s3.py", "test_headers.py")

# Why tests fail: what their names match, and the reason. The first row that matches counts.
REASONS = [
    (r"unordered|account_usage|head_bucket_usage|head_extended|100_continue_error_retry|allow_notprincipal|torrent",
     "asks for something that only Ceph has"),
    (r"cors_presigned_.*v2$|bucket_create_bad_(ua_.*|date_none)_aws2$",
     "a bucket is to be made with a signature of version 2, which does not match"),
    (r"tenant", "tenants: bucket names with a colon"),
    (r"encryption|sse_|_enc_", "encryption by the server"),
    (r"transition|storage_class", "transitions between storage classes"),
    (r"object_attributes$", "the entity tag has quotes; AWS writes it without them here"),
    (r"object_create_bad_(contentlength_none|authorization_|date_none_aws2)|bucket_create_bad_authorization_(empty|none)",
     "the suite cannot take the header away or change it, as its marks say (fails_on_rgw): a good request is answered"),
    (r"post_object_(missing_policy_condition|request_missing_policy|wrong_bucket|invalid_request_field)",
     "the library below (s3s) answers 400 to a form that its policy does not allow, where 403 is expected"),
    (r"post_object_tags_anonymous", "the library below (s3s) does not read the field tagging of a form"),
    (r"post_object_invalid_date_format", "the library below (s3s) takes a date in the policy of a form that the test wants refused"),
    (r"post_object_success_redirect", "the entity tag in the address that a form leads to has no quote at its end"),
    (r"post_object_upload_checksum", "the form has a field that its policy does not name"),
    (r"unicode_metadata", "metadata that are not ASCII come back encoded (RFC 2047)"),
    (r"object_read_unreadable", "the key is sent as valid UTF-8, and there is no such object"),
    (r"date_and_amz_date|amz_date_and_no_date", "the library below (s3s) answers such a request before the gateway sees it"),
    (r"bad_authorization_invalid_aws2|x_amz_expires_out|raw_put_authenticated_expired",
     "refused, with another status than the test wants"),
    (r"chunked_transfer_encoding", "a body whose length is not told is refused"),
    (r"object_header_acl_grants", "a grant to write an object is not kept"),
    (r"multipart_upload_owner", "another owner of an upload is told than the test wants"),
    (r"resend_first_finishes_last", "two uploads of a part at the same time: a part that the test names is not the one that counts"),
    (r"lifecycle_set_invalid_date", "a date is taken that the test wants refused"),
    (r"put_obj_request_obj_tag", "the test adds the tags to requests of another client than the one that sends the object"),
    (r"delete_object_current_if_match$", "a delete under a condition is refused where there is no object"),
]


folder = pathlib.Path(tests) / "s3tests/functional"


def names():
    """Each test with its marks."""
    for file in FILES:
        for function in functions(folder / file):
            yield function.name, " ".join(ast.unparse(mark) for mark in function.decorator_list)


def functions(file):
    """The tests in a file."""
    for function in ast.parse(file.read_text()).body:
        if isinstance(function, ast.FunctionDef) and function.name.startswith("test_"):
            yield function


def outcomes():
    """The worst outcome of each test that ran, with the message of a failure."""
    found = {}
    for file in pathlib.Path(result).glob("*.xml"):
        for case in ET.parse(file).iter("testcase"):
            name = case.get("name").split("[")[0]
            bad = case.find("failure") if case.find("failure") is not None else case.find("error")
            if bad is not None:
                found[name] = ("failed", " ".join((bad.get("message") or "").split()))
            elif case.find("skipped") is not None:
                found.setdefault(name, ("skipped", ""))
            else:
                found.setdefault(name, ("passed", ""))
    return found


ran, excluded, failed = outcomes(), collections.defaultdict(list), collections.defaultdict(list)
passed, skipped = [], []
for name, its in names():
    if name in ran:
        outcome, message = ran[name]
        if outcome == "passed":
            passed.append(name)
        elif outcome == "skipped":
            skipped.append(name)
        else:
            reason = next((reason for pattern, reason in REASONS if re.search(pattern, name)), "other")
            failed[reason].append((name, message))
    else:
        excluded[next((mark for mark in marks if mark in its), "not run")].append(name)
commit = subprocess.run(["git", "-C", tests, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
short = lambda name: name.removeprefix("test_")
print("# Ceph's s3-tests against the S3 gateway\n")
print(f"Written by `scripts/s3-tests.sh` on {date}; Kintsu {kintsu}, s3-tests {commit.stdout.strip()}.\n")
others = {file.name: len(list(functions(file))) for file in sorted(folder.glob("test_*.py")) if file.name not in FILES}
print("| outcome | tests |\n|---|---|")
print(f"| passed | {len(passed)} |\n| failed | {sum(map(len, failed.values()))} |")
print(f"| skipped by themselves | {len(skipped)} |\n| not asked for | {sum(map(len, excluded.values()))} |\n")
print("## Failed\n")
for reason, rows in sorted(failed.items()):
    print(f"{reason[0].upper()}{reason[1:]}:\n")
    for name, message in rows:
        print(f"- `{short(name)}`: {message[:120]}")
    print()
print("## Not asked for, by mark\n")
for mark, rows in sorted(excluded.items()):
    print(f"`{mark}` ({len(rows)}): {', '.join(map(short, rows))}\n")
if others:
    whole = ", ".join(f"`{file}` ({count})" for file, count in others.items())
    print(f"Whole files, for services that the gateway does not offer or for the tests' own tools: {whole}\n")
print("## Skipped by themselves\n")
print(", ".join(map(short, skipped)) + "\n")
print("## Passed\n")
print(", ".join(map(short, passed)))
