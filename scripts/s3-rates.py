"""Puts and gets objects of an S3 server and prints rates: s3-rates.py URL REGION [SECONDS]. Keys are in AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY. Each client is a process of its own with one connection; its requests are signed before the clock starts.
With --sign METHOD PATH in place of SECONDS it prints what to ask for instead."""

import datetime
import hashlib
import hmac
import itertools
import json
import multiprocessing
import os
import socket
import sys
import time
import urllib.parse

url, region = sys.argv[1:3]
seconds = 3.0 if len(sys.argv) < 4 or sys.argv[3] == "--sign" else float(sys.argv[3])
host = urllib.parse.urlparse(url).netloc
bucket = "rates"
SIZES = [("4 KiB", 4 << 10), ("1 MiB", 1 << 20), ("64 MiB", 64 << 20)]


def signed(method, path):
    """A presigned target (Signature Version 4)."""
    access, secret = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{now[:8]}/{region}/s3/aws4_request"
    query = urllib.parse.urlencode(
        {
            "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
            "X-Amz-Credential": f"{access}/{scope}",
            "X-Amz-Date": now,
            "X-Amz-Expires": "3600",
            "X-Amz-SignedHeaders": "host",
        }
    )
    request = f"{method}\n{path}\n{query}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD"
    text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = ("AWS4" + secret).encode()
    for part in (now[:8], region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return f"{path}?{query}&X-Amz-Signature={hmac.new(key, text.encode(), hashlib.sha256).hexdigest()}"


class Connection:
    """A connection that is kept. It does as little as can be, because clients share the processors with what they measure."""

    def __init__(self):
        name, _, port = host.partition(":")
        self.socket = socket.create_connection((name, int(port or 80)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray(1 << 20)
        self.view = memoryview(self.buffer)

    def call(self, head, body=b""):
        """Sends a request and takes the whole answer. Returns its status and the bytes of its body."""
        # A short body goes along with its head.
        if len(body) < 1 << 16:
            self.socket.sendall(head + body)
        else:
            self.socket.sendall(head)
            self.socket.sendall(body)
        got = 0
        while (end := self.buffer.find(b"\r\n\r\n", 0, got)) < 0:
            if not (more := self.socket.recv_into(self.view[got:])):
                raise SystemExit(f"the server closed the connection: {head!r}")
            got += more
        lines = bytes(self.view[:end]).lower().split(b"\r\n")
        status = int(lines[0].split()[1])
        # Of what is only asked for, an absent object is an answer.
        if status >= 300 and not (status == 404 and head.startswith(b"HEAD")):
            raise SystemExit(f"{head!r}: {bytes(self.view[:got])!r}")
        length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
        left = 0 if head.startswith(b"HEAD") else length - (got - end - 4)
        while left > 0:
            if not (more := self.socket.recv_into(self.view, min(left, len(self.buffer)))):
                raise SystemExit(f"the server closed the connection: {head!r}")
            left -= more
        return status, length


def head(method, path, size=0):
    """The head of a request, signed."""
    return f"{method} {signed(method, path)} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {size}\r\n\r\n".encode()


def client(number, method, size, ready, begin, done):
    connection = Connection()
    body = os.urandom(size) if method == "PUT" else b""
    many = 4096 if size < 1 << 16 else 64 if size < 1 << 24 else 2
    paths = [f"/{bucket}/{size}-{number}-{i}" for i in range(many)]
    if method == "GET":
        # What is read was written by the puts before, as far as they got.
        paths = list(itertools.takewhile(lambda path: connection.call(head("HEAD", path))[0] == 200, paths[:256]))
    heads = [head(method, path, len(body)) for path in paths]
    ready.put(number)
    begin.wait()
    count, begun = 0, time.monotonic()
    while time.monotonic() - begun < seconds:
        _, length = connection.call(heads[count % len(heads)], body)
        if method == "GET" and length != size:
            raise SystemExit(f"expected {size} bytes, got {length}")
        count += 1
    done.put((count, time.monotonic() - begun))


def measure(method, size, clients):
    """Objects in a second."""
    ready, done, begin = multiprocessing.Queue(), multiprocessing.Queue(), multiprocessing.Event()
    work = [
        multiprocessing.Process(target=client, args=(n, method, size, ready, begin, done)) for n in range(clients)
    ]
    for one in work:
        one.start()
    for _ in work:
        ready.get(timeout=120)
    begin.set()
    rate = sum(count / took for count, took in (done.get(timeout=120) for _ in work))
    for one in work:
        one.join()
    return rate


if __name__ == "__main__":
    if sys.argv[3:4] == ["--sign"]:
        print(signed(*sys.argv[4:6]))
        sys.exit()
    Connection().call(head("PUT", f"/{bucket}"))
    rows = []
    for name, size in SIZES:
        for clients in (1, 16):
            for method in ("PUT", "GET"):
                rate = measure(method, size, clients)
                rows.append({"size": name, "clients": clients, "method": method, "per_second": round(rate, 1)})
                print(f"{name:>7} {clients:3} clients {method} {rate:9.1f}/s {rate * size / 1e6:9.1f} MB/s", file=sys.stderr)
    print(json.dumps(rows))
