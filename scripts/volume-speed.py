#!/usr/bin/env python3
"""Measures a volume over NBD beside plain files on the same disk, with fio, and while a lost node is repaired.

    scripts/volume-speed.py [--seconds 10] [--runs 3] [--size 4GiB] [--code rs:n=6,k=4] [--folder /tmp] [--least 0.5] [--json] [--page FILE]

A coordinator and 9 agents in 3 racks run in processes of their own on this machine, so they share its processors and its
disk: 4 KiB written to the volume are two appends to two logs, each synced. Printed are operations a second:

- 4 KiB random writes, one and 32 at a time: the volume; a plain file whose every write is synced; two logs that are
  appended to and synced side by side (what a write to the volume costs the disk, with 32 appends to a sync for 32);
- where the time of such a write goes: what the two logs take, and for how long each kind of process keeps a processor busy;
- random writes and reads of 4 KiB, and writes and reads of 1 MiB, each with all nodes, with one lost, and while it is repaired, as
  parts of the speed with all nodes. Ends with 1 if one of these is less than `--least`. Before each of the three, all is committed,
  and then random writes make as many stripes dirty, whose commits go on in the first seconds: so each is compared with as many seconds
  with all nodes, from the first on. Both losses count from when the coordinator calls the node dead; its logs move then.

With `--page docs/updates.md` the table goes into that page, between <!-- results volume-speed --> and <!-- end -->.
The program is KINTSU_BIN, or the one of a release build. Everything lies in a new folder, which is removed at the end.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("KINTSU_BIN") or str(ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "release/kintsu")
NODES, RACKS = 9, 3
SPLICE = pathlib.Path(__file__).with_name("splice.sh")
PLACE = ["<!-- results volume-speed -->", "<!-- end -->"]


def size(text):
    """Bytes of a size such as 4GiB."""
    match = re.fullmatch(r"(\d+)(MiB|GiB)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"expected a size such as 512MiB or 4GiB, got {text}")
    return int(match[1]) << {"MiB": 20, "GiB": 30}[match[2]]


class Cluster:
    """The processes of a cluster with a volume, served over a Unix socket."""

    def __init__(self, folder):
        self.folder, self.running = folder, {}

    def up(self, volume_bytes, code):
        folder = self.folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        os.environ["KINTSU_COORDINATOR"] = self.address
        self.start("coordinator", "coordinator", "--dir", folder / "coordinator", "--listen", self.address, "--grace", "1h")
        wait("the coordinator", lambda: self.run("nodes") is not None)
        for node in range(NODES):
            self.start(f"agent-{node}", "agent", "--dir", folder / f"node-{node}", "--id", node, "--rack", node % RACKS)
        wait("all agents", lambda: (self.run("nodes") or "").count(" alive") == NODES)
        self.run("volume", "create", "speed", "--size", volume_bytes, "--code", code, check=True)
        self.socket = folder / "nbd.sock"
        self.start("nbd", "nbd", "speed", "--unix", self.socket)
        wait("the NBD server", self.socket.exists)

    def start(self, name, *args):
        log = open(self.folder / f"{name}.log", "ab")
        args = [PROGRAM, *map(str, args)]
        self.running[name] = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def run(self, *args, check=False):
        """The output of a command; None if it failed."""
        done = subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True)
        if done.returncode and check:
            sys.exit(f"kintsu {' '.join(map(str, args))}: {done.stderr}")
        return None if done.returncode else done.stdout

    def busy(self):
        """Seconds for which each kind of process has kept a processor busy; fio's are those of all jobs that have ended."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = {"fio": ended.ru_utime + ended.ru_stime}
        for name, process in self.running.items():
            ticks = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
            kind = name.partition("-")[0]
            seconds[kind] = seconds.get(kind, 0) + sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
        return seconds

    def end(self):
        for name in sorted(self.running, key=lambda name: name != "nbd"):
            self.running[name].send_signal(signal.SIGTERM if name == "nbd" else signal.SIGKILL)
            self.running[name].wait()


def wait(what, done, seconds=60):
    """Waits until something holds."""
    until = time.monotonic() + seconds
    while not done():
        if time.monotonic() > until:
            sys.exit(f"gave up waiting for {what} after {seconds} s")
        time.sleep(0.1)


def fio(*options, stop=None, each_second=None):
    """Runs a fio job; returns its result: operations and MB a second of both directions. `stop` ends it early. With a folder for
    its log the operations of each second are among them."""
    if each_second:
        options = [*options, f"--write_iops_log={each_second}/fio", "--log_avg_msec=1000"]
    command = ["fio", "--name=speed", "--output-format=json", "--randrepeat=0", "--group_reporting", *options]
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while stop and job.poll() is None and not stop():
        time.sleep(0.1)
    if stop and job.poll() is None:
        job.send_signal(signal.SIGINT)
    out, err = job.communicate()
    if "{" not in out:
        sys.exit(f"fio {' '.join(options)}: {err or out}")
    job = json.loads(out[out.index("{"):])["jobs"][0]
    if job["error"]:
        sys.exit(f"fio {' '.join(options)}: error {job['error']}: {err}")
    sides = [job["read"], job["write"]]
    logs = sorted(each_second.glob("fio_iops*.log")) if each_second else []
    return {
        "each_second": [int(line.split(",")[1]) for log in logs for line in log.read_text().splitlines()],
        "iops": sum(side["total_ios"] / (side["runtime"] / 1e3) for side in sides if side["runtime"]),
        "mb": sum(side["io_bytes"] / (side["runtime"] / 1e3) / 1e6 for side in sides if side["runtime"]),
        "p99_ms": max(side["clat_ns"].get("percentile", {}).get("99.000000", 0) for side in sides) / 1e6,
        "seconds": max(side["runtime"] for side in sides) / 1e3,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=10, help="of each measurement")
    parser.add_argument("--runs", type=int, default=3, help="with all nodes, with one lost, and while it is repaired")
    parser.add_argument("--size", type=size, default=size("4GiB"), help="of the volume, which is filled first")
    parser.add_argument("--code", default="rs:n=6,k=4")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="where the data lie; not a tmpfs, which syncs nothing")
    parser.add_argument("--least", type=float, default=0.5, help="part of the speed with all nodes that must be left")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--page", type=pathlib.Path, help="a page of the documentation, whose place volume-speed gets the table")
    args = parser.parse_args()
    if args.page and subprocess.run([SPLICE, "--check", args.page, *PLACE]).returncode != 0:
        sys.exit(1)
    for tool in ["fio"]:
        if not shutil.which(tool):
            sys.exit(f"expected {tool} to be installed (scripts/setup.sh)")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="kintsu-speed-", dir=args.folder))
    cluster = Cluster(folder)
    try:
        cluster.up(args.size, args.code)
        rows = measure(cluster, folder, args)
    finally:
        cluster.end()
        shutil.rmtree(folder, ignore_errors=True)
    text = markdown(rows, args)
    print(json.dumps(rows) if args.json else text)
    if args.page:
        subprocess.run([SPLICE, args.page, *PLACE], input=text, text=True, check=True)
    slow = [row["what"] for row in rows if "parts" in row and statistics.median(row["parts"]) < args.least]
    if slow:
        sys.exit(f"expected at least {args.least} of the speed with all nodes, got less: {'; '.join(slow)}")


def markdown(rows, args):
    """The table, and what it says."""
    model = re.search(r"^model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    version = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    lines = [
        f"`{args.code}` on {NODES} agents of one machine ({model[1] if model else 'unknown'}, {os.cpu_count()} processors, shared with fio), volume of "
        f"{args.size >> 20} MiB, {args.seconds} s each, with and without a node the median of {args.runs} runs (the least to the most); {version}, {time.strftime('%F')}:",
        "",
        "| what | operations/s | MB/s | p99, ms | of as many seconds with all nodes |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        parts = row.get("parts")
        part = f"{statistics.median(parts):.2f} ({min(parts):.2f} to {max(parts):.2f})" if parts else "-"
        lines.append(f"| {row['what']} | {row['iops']:.0f} | {row['mb']:.1f} | {row['p99_ms']:.2f} | {part} |")
    lines.append("")
    each = {row["what"]: 1e3 / row["iops"] for row in rows if row["iops"]}
    for row in rows:
        if "busy_ms" in row:
            busy = row["busy_ms"]
            shares = ", ".join(f"{kind} {busy[kind]:.3f}" for kind in sorted(busy, key=busy.get, reverse=True))
            lines.append(
                f"- {row['what']}: one every {each[row['what']]:.3f} ms, of two logs alone one every {each[row['logs']]:.3f} ms. Each keeps "
                f"processors busy for {sum(busy.values()):.3f} ms ({shares})."
            )
    parts = [statistics.median(row["parts"]) for row in rows if "parts" in row]
    verdict = "holds" if min(parts) >= args.least else "MISSED"
    lines.append(f"- With a node lost, and while it is repaired, at least {min(parts):.2f} of the speed is left; aim: {args.least}, {verdict}.")
    return "\n".join(lines) + "\n"


def measure(cluster, folder, args):
    rows = []
    timed = ["--time_based", f"--runtime={args.seconds}"]
    disk = ["--ioengine=nbd", f"--uri=nbd+unix:///speed?socket={cluster.socket}", f"--size={args.size}"]

    def row(what, result):
        rows.append({"what": what, **told(what, result)})

    plain = ["--ioengine=io_uring", "--direct=0", f"--directory={folder}", f"--size={min(args.size, 1 << 30)}"]
    small, large = ["--bs=4k"], ["--bs=1M", "--iodepth=8"]
    row("volume: written once, 1 MiB writes, 8 at a time", fio(*disk, *large, "--rw=write"))
    for depth in (1, 32):
        deep = [*small, f"--iodepth={depth}", *timed]
        logs = f"each of two logs, {depth} appends to a sync"
        idle = cluster.busy()
        written = fio(*disk, *deep, "--rw=randwrite")
        written["busy_ms"] = {
            kind: 1e3 * (seconds - idle[kind]) / (written["iops"] * written["seconds"]) for kind, seconds in cluster.busy().items()
        }
        row(f"volume: 4 KiB random writes, {depth} at a time", {**written, "logs": logs})
        row(f"plain file, each write synced, {depth} at a time",
            fio(*plain, *deep, "--rw=randwrite", "--sync=dsync", "--overwrite=1"))
        row(logs, halved(fio(*plain, *timed, *small, "--rw=write", f"--fdatasync={depth}", "--numjobs=2")))
    dirtying = [*small, "--iodepth=32", "--rw=randwrite"]
    jobs = {
        "4 KiB random writes, 32 at a time": dirtying,
        "4 KiB random reads, 32 at a time": [*small, "--iodepth=32", "--rw=randread"],
        "1 MiB writes, 8 at a time": [*large, "--rw=write"],
        "1 MiB reads, 8 at a time": [*large, "--rw=read"],
    }

    def some_dirty():
        cluster.run("volume", "commit", "speed", check=True)
        fio(*disk, *dirtying, *timed)

    lost_before = 0

    def lose():
        """A node of its own each time, lost for good, and counted as dead: the others have all copies of those before by now."""
        nonlocal lost_before
        node, lost_before = lost_before % NODES, lost_before + 1
        cluster.running[f"agent-{node}"].kill()
        cluster.running[f"agent-{node}"].wait()
        wait("the node to count as dead", lambda: (cluster.run("nodes") or "").count(" alive") == NODES - 1)
        return node

    def repair(node, meanwhile):
        """The result of `meanwhile`, which gets what tells that the repair is over. Then an empty disk takes the lost one's place."""
        # A file, because nobody reads meanwhile, and a pipe may be full.
        report = open(folder / f"repair-{lost_before}.json", "wb")
        running = subprocess.Popen([PROGRAM, "repair", "--node", str(node), "--json"], stdout=report)
        result = meanwhile(lambda: running.poll() is not None)
        if running.wait():
            sys.exit(f"the repair of node {node} failed: {pathlib.Path(report.name).read_text()[-2000:]}")
        shutil.rmtree(folder / f"node-{node}")
        cluster.start(f"agent-{node}", "agent", "--dir", folder / f"node-{node}", "--id", node, "--rack", node % RACKS, "--replace")
        wait("the new disk", lambda: (cluster.run("nodes") or "").count(" alive") == NODES)
        return result

    long = 3 * args.seconds
    runs = {what: [] for what in jobs}
    for what, options in list(jobs.items()) * args.runs:
        some_dirty()
        before = told(f"all nodes: {what}", fio(*disk, *options, "--time_based", f"--runtime={long}", each_second=folder))
        some_dirty()
        node = lose()
        lost = told(f"a node lost: {what}", fio(*disk, *options, *timed))
        repair(node, lambda is_over: None)
        some_dirty()
        repaired = repair(lose(), lambda is_over: fio(*disk, *options, "--time_based", "--runtime=600", stop=is_over))
        runs[what].append((before, lost, told(f"while it is repaired: {what}", repaired)))
    for what, all_runs in runs.items():
        before, lost, repaired = zip(*all_runs)
        took = statistics.median(result["seconds"] for result in repaired)
        states = {f"all nodes ({long} s)": before, "a node lost": lost, f"while it is repaired ({took:.0f} s)": repaired}
        for state, results in states.items():
            median = {key: statistics.median(result[key] for result in results) for key in ("iops", "mb", "p99_ms")}
            parts = [result["iops"] / begun(first, result["seconds"]) for result, first in zip(results, before)]
            rows.append({"what": f"{state}: {what}", **median} | ({} if results is before else {"parts": parts}))
    return rows


def begun(result, seconds):
    """Operations a second in the first seconds."""
    return statistics.mean(result["each_second"][: max(1, round(seconds))])


def told(what, result):
    print(f"{what}: {result['iops']:.0f} a second", file=sys.stderr)
    return result


def halved(result):
    """What each of two jobs did."""
    return {**result, "iops": result["iops"] / 2, "mb": result["mb"] / 2}


if __name__ == "__main__":
    main()
