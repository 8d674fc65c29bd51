"""A real cluster: codes of one's own registered, stored with, degraded, repaired."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from miser import Miser

import kintsu

DATA = bytes(range(256)) * 8192  # 2 MiB
HALVES = {"block_bytes": 1 << 20, "cell_bytes": 256 << 10}


def home(cluster, name, block):
    """The node of a block of the first stripe."""
    return cluster.stat(name)["stripes"][0]["blocks"][block]["node"]


def test_miser_from_idea_to_repaired_file(cluster):
    assert cluster.put(DATA, "film", code=Miser(), **HALVES)["code"] == "user:miser"
    node = home(cluster, "film", 0)
    cluster.stop_node(node)
    got, read = cluster.read("film")
    assert got == DATA and read["degraded_stripes"] == 1
    report = cluster.repair(name="film", method="conventional")
    assert report["blocks"] == 1
    # Half of each of three blocks of 1 MiB.
    assert report["bytes_read"] == 3 * (1 << 19)
    assert home(cluster, "film", 0) != node
    got, read = cluster.read("film")
    assert got == DATA and read["degraded_stripes"] == 0
    cluster.start_node(node)


def test_a_cluster_keeps_the_code_and_gives_it_back(cluster):
    name = cluster.register(Miser(), "kept")
    assert name == "user:kept" and cluster.register(Miser(), "kept") == name
    assert name in [code["name"] for code in cluster.codes()]
    code = cluster.code("kept")
    assert code.prove().repairs == Miser().prove().repairs
    data = [os.urandom(64), os.urandom(64)]
    assert all((a == b).all() for a, b in zip(code.encode(data), Miser().encode(data)))
    cluster.remove_code("kept")
    with pytest.raises(kintsu.NotFoundError):
        cluster.code("kept")


READ = """
import kintsu, sys
sys.stdout.buffer.write(kintsu.Cluster(sys.argv[1]).get(sys.argv[2]))
"""


def test_files_outlive_the_class_that_coded_them(cluster):
    cluster.put(DATA, "heirloom", code=Miser(), **HALVES)
    node = home(cluster, "heirloom", 1)
    cluster.stop_node(node)
    # A process that never saw the class.
    read = subprocess.run([sys.executable, "-c", READ, cluster.endpoint, "heirloom"], capture_output=True, check=True)
    assert read.stdout == DATA
    cluster.start_node(node)


def test_a_taken_name_is_refused(cluster):
    cluster.register(Miser(), "taken")
    rs = kintsu.parse("rs:n=4,k=2")
    with pytest.raises(kintsu.ExistsError, match="user:taken"):
        cluster.register(rs, "taken")
    assert cluster.register(rs) == "rs:n=4,k=2"
    with pytest.raises(kintsu.InvalidError, match="name of a user code"):
        cluster.register(rs, "Not A Name")


def test_objects_are_put_listed_read_in_part_and_removed(cluster, tmp_path):
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.write_bytes(DATA)
    cluster.put(source, "part/file", code="rs:n=6,k=4")
    cluster.put(bytearray(b"few bytes"), "part/bytes", code="rs:n=6,k=4")
    assert [found["name"] for found in cluster.list("part/")] == ["part/bytes", "part/file"]
    assert cluster.get("part/file", range(1000, 3000)) == DATA[1000:3000]
    assert cluster.get("part/file", slice(len(DATA) - 10, None)) == DATA[-10:]
    assert cluster.get_to("part/file", copy)["bytes"] == len(DATA)
    assert copy.read_bytes() == DATA and sorted(os.listdir(tmp_path)) == ["copy", "source"]
    with pytest.raises(kintsu.ExistsError):
        cluster.put(b"other", "part/bytes", code="rs:n=6,k=4")
    cluster.put(b"other", "part/bytes", code="rs:n=6,k=4", replace=True)
    assert cluster.get("part/bytes") == b"other"
    cluster.remove("part/bytes")
    with pytest.raises(kintsu.NotFoundError):
        cluster.get("part/bytes")
    with pytest.raises(kintsu.NotFoundError):
        cluster.get_to("part/bytes", copy)
    assert copy.read_bytes() == DATA and sorted(os.listdir(tmp_path)) == ["copy", "source"]


def test_parity_is_made_later_and_all_is_verified(cluster):
    cluster.put(DATA, "later", code="rs:n=6,k=4", offline=True)
    assert not cluster.stat("later")["object"]["encoded"]
    assert cluster.encode("later")["blocks"] > 0
    assert cluster.stat("later")["object"]["encoded"]
    assert cluster.scrub()["bad"] == []


def test_the_cluster_is_asked(cluster):
    assert len(cluster.nodes()) == 8 and "silent_ms" in cluster.nodes().columns()
    assert cluster.status()["alive"] >= 7
    with pytest.raises(kintsu.InvalidError, match="expected auto, conventional, ppr, pipeline"):
        cluster.repair(method="magic")
    with pytest.raises(kintsu.InvalidError, match="a node, a name, or neither"):
        cluster.repair(node=1, name="film")


@pytest.fixture(scope="module")
def secure(cluster, tmp_path_factory):
    """Three agents and their coordinator in TLS, each with its own certificate; yields their folder and the address."""
    del cluster  # It says whether there is a program at all.
    folder = tmp_path_factory.mktemp("secure")
    program = os.environ["KINTSU_BIN"]
    subprocess.run([program, "ca", "init", folder / "ca"], check=True, capture_output=True)
    for role in ["coordinator", "agent/0", "agent/1", "agent/2", "client/alice", "operator/carol"]:
        out = folder / role.replace("/", "-")
        issue = [program, "ca", "issue", folder / "ca", "--role", role, "--out", out]
        subprocess.run(issue, check=True, capture_output=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
    coordinator = ["coordinator", "--dir", folder / "metadata", "--listen", endpoint, "--tls", folder / "coordinator"]
    agents = [
        ["agent", "--dir", folder / f"disk{i}", "--rack", str(i), "--tls", folder / f"agent-{i}"] for i in range(3)
    ]
    agents = [[*agent, "--coordinator", endpoint] for agent in agents]
    started = []
    try:
        for arguments in [coordinator, *agents]:
            with (folder / "log").open("ab") as log:
                started.append(subprocess.Popen([program, *arguments], stdout=log, stderr=log))
        carol = kintsu.Cluster(endpoint, tls=folder / "operator-carol")
        until = time.monotonic() + 60
        while True:
            try:
                if carol.status()["alive"] == 3:
                    break
            except kintsu.UnreachableError:
                pass
            assert time.monotonic() < until, (folder / "log").read_text()
            time.sleep(0.1)
        yield folder, endpoint
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(20)


def test_a_cluster_in_tls_is_for_those_with_a_certificate(secure):
    folder, endpoint = secure
    alice = kintsu.Cluster(endpoint, tls=str(folder / "client-alice"))
    alice.put(DATA, "film", code="rs:n=3,k=2")
    assert alice.get("film") == DATA and alice.get("film", range(5, 9)) == DATA[5:9]
    with pytest.raises(kintsu.KintsuError, match="expected an operator, got client/alice"):
        alice.nodes()
    carol = kintsu.Cluster(endpoint, tls=folder / "operator-carol")
    assert len(carol.nodes()) == 3
    with pytest.raises(kintsu.UnreachableError, match="does only one side speak TLS"):
        kintsu.Cluster(endpoint).get("film")


def test_a_folder_without_a_certificate_is_said(tmp_path):
    with pytest.raises(kintsu.InvalidError, match="invalid tls: expected a folder with ca.pem, cert.pem and key.pem"):
        kintsu.Cluster(tls=tmp_path)


def test_nobody_there_is_said_at_once():
    with pytest.raises(kintsu.UnreachableError, match="no coordinator answers at 127.0.0.1:1"):
        kintsu.Cluster("127.0.0.1:1").status()


def test_no_program_is_said_with_what_helps(monkeypatch):
    monkeypatch.setenv("KINTSU_BIN", "/nowhere/kintsu")
    with pytest.raises(kintsu.NotFoundError, match="got /nowhere/kintsu; `cargo install"):
        kintsu.LocalCluster()


# A shell's background jobs, and what they start, ignore the signal unless they ask for it.
WAITING = """
import kintsu, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    print("waiting", flush=True)
    kintsu.Cluster(sys.argv[1]).status()
except KeyboardInterrupt:
    sys.exit(42)
"""


def test_control_c_ends_a_call():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-c", WAITING, endpoint]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout.readline() == "waiting\n"
            with silent.accept()[0]:  # The call has begun, and nothing will answer it.
                process.send_signal(signal.SIGINT)
                # Well before the call would end by itself.
                assert process.wait(20) == 42
        finally:
            process.kill()
            process.wait()
