"""A client of a cluster (objects, repairs, codes), and a local cluster to try it with."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _kintsu
from .code import Code, MadeCode, user_name
from .errors import ClusterError, NotFoundError
from .report import Table

if TYPE_CHECKING:
    from typing_extensions import Self

DEFAULT_ENDPOINT = "127.0.0.1:7400"
DEFAULT_CODE = "rs:n=9,k=6"

Report = dict[str, Any]


class Cluster:
    """A client of the coordinator at ``endpoint``. Calls block, let other threads go on, and end on Ctrl-C.

    A cluster in TLS needs ``tls``: a folder with ``ca.pem``, ``cert.pem`` and ``key.pem``, as ``kintsu ca issue``
    makes it and the command line's ``--tls`` takes it. The certificate says what may be done: objects need a client
    or an operator, all else an operator. A cluster with a token needs ``token``.

    Reports are dicts with the keys of the command line's ``--json`` output.
    """

    def __init__(
        self,
        endpoint: str = DEFAULT_ENDPOINT,
        token: str | None = None,
        *,
        tls: str | os.PathLike[str] | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._native = _kintsu.Cluster(endpoint, token, None if tls is None else os.fspath(tls))

    def put(
        self,
        source: bytes | bytearray | memoryview | str | os.PathLike[str],
        name: str,
        code: Code | str = DEFAULT_CODE,
        *,
        offline: bool = False,
        block_bytes: int | None = None,
        cell_bytes: int | None = None,
        replace: bool = False,
    ) -> Report:
        """Stores a file (given by its path) or bytes as an object.

        ``code`` is a name, or a code; one that is not built in is registered first. Sizes that are not given are
        chosen to fit the code. With ``offline`` the parity is computed later, by :meth:`encode`. Raises
        :class:`kintsu.ExistsError` if the name is taken and ``replace`` is not set.
        """
        if isinstance(source, (bytearray, memoryview)):
            source = bytes(source)
        elif not isinstance(source, bytes):
            source = os.fspath(source)
        if isinstance(code, Code):
            code = self.register(code)
        return self._native.put(source, name, code, offline, block_bytes, cell_bytes, replace)

    def register(self, code: Code, name: str | None = None) -> str:
        """Registers a code with the cluster, which proves it and keeps it as data; returns its name, ``user:NAME``.

        A built-in code without a new name needs no registering. Raises :class:`kintsu.ExistsError` when the name is
        taken by another code; the same code may be registered again.
        """
        proved = code._ready()
        if name is None and proved.definition() is None:
            return proved.name
        name = proved.name if name is None else user_name(name)
        self._native.register(proved, name)
        return name

    def code(self, name: str) -> Code:
        """A registered code. It is proved again in this process and does not need the class that made it."""
        return MadeCode(self._native.code(user_name(name)))

    def codes(self) -> Table:
        """The registered codes."""
        return Table(self._native.codes())

    def remove_code(self, name: str) -> None:
        """Makes the cluster forget a registered code that no object uses."""
        self._native.remove_code(user_name(name))

    def get(self, name: str, range: range | slice | None = None) -> bytes:
        """The bytes of an object, or those from ``range.start`` to before ``range.stop``."""
        return self._native.read(name, self._range(name, range))[0]

    def get_to(self, name: str, path: str | os.PathLike[str], range: range | slice | None = None) -> Report:
        """Writes an object to a file, which is written completely or not at all; returns the cost of the read."""
        return self._native.read_to(name, os.fspath(path), self._range(name, range))

    def read(self, name: str, range: range | slice | None = None) -> tuple[bytes, Report]:
        """As :meth:`get`, also with the cost: bytes read from disks, stripes that had to be decoded."""
        return self._native.read(name, self._range(name, range))

    def remove(self, name: str) -> Report:
        """Removes an object; its blocks are deleted in time."""
        return self._native.remove(name)

    def stat(self, name: str) -> Report:
        """An object, and where its blocks are."""
        return self._native.stat(name)

    def list(self, prefix: str = "") -> Iterator[Report]:
        """The objects whose names have this prefix, in order."""
        after = None
        while True:
            page = self._native.page(prefix, after, 1000)
            yield from page["objects"]
            if not page["more"] or not page["objects"]:
                return
            after = page["objects"][-1]["name"]

    def nodes(self) -> Table:
        """All nodes."""
        return Table(self._native.nodes())

    def status(self) -> Report:
        """The cluster in numbers."""
        return self._native.status()

    def encode(self, name: str) -> Report:
        """Encodes an object that was put ``offline``."""
        return self._native.encode(name)

    def repair(
        self,
        *,
        node: int | None = None,
        name: str | None = None,
        method: str = "auto",
        slice_bytes: int = 32 << 10,
    ) -> Report:
        """Repairs unavailable blocks: of a node, of an object, or all.

        ``method`` is ``auto``, or the name of another one (``kintsu repair --help`` lists them). The report counts
        bytes read, moved, and moved across racks.
        """
        return self._native.repair(node, name, method, slice_bytes)

    def scrub(self, node: int | None = None) -> Report:
        """Verifies all blocks, of one node or of all, and repairs rotten ones."""
        return self._native.scrub(node)

    def stop_node(self, node: int) -> Report:
        """Stops a node's agent; its blocks become unavailable."""
        return self._native.command_node(node, "stop")

    def start_node(self, node: int) -> Report:
        """Starts a stopped node again (where the coordinator started it, as ``kintsu up`` does)."""
        return self._native.command_node(node, "start")

    def drain_node(self, node: int) -> Report:
        """Moves all blocks of a node elsewhere."""
        return self._native.command_node(node, "drain")

    def close(self) -> None:
        """Waits until last messages are sent."""
        self._native.close()

    def _range(self, name: str, range: range | slice | None) -> tuple[int, int] | None:
        if range is None:
            return None
        step = 1 if range.step is None else range.step
        if step != 1 or (range.start or 0) < 0 or (range.stop is not None and range.stop < 0):
            raise ValueError(f"invalid range: expected a start and stop of 0 or more and step 1, got {range}")
        stop = self.stat(name)["object"]["size"] if range.stop is None else range.stop
        return range.start or 0, stop

    def __repr__(self) -> str:
        return f"<kintsu.Cluster {self.endpoint}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class LocalCluster(Cluster):
    """A cluster on this machine. It ends with its ``with`` block, or with Python.

    It runs the ``kintsu`` program as a child process: the one that the environment variable KINTSU_BIN names, or the
    one on PATH. Its data are in ``dir`` if given, else in a folder that is removed at the end.
    """

    def __init__(
        self,
        nodes: int = 20,
        racks: int = 5,
        *,
        dir: str | os.PathLike[str] | None = None,
        patience: float = 60.0,
    ) -> None:
        binary = _binary()
        folder = Path(tempfile.mkdtemp(prefix="kintsu-") if dir is None else dir)
        folder.mkdir(parents=True, exist_ok=True)
        command = [binary, "up", "--json", "--nodes", str(nodes), "--racks", str(racks)]
        command += ["--dir", str(folder / "cluster"), "--listen", "127.0.0.1:0"]
        said, log = folder / "up.json", folder / "up.log"
        with said.open("wb") as out, log.open("wb") as errors:
            # In a separate session: Ctrl-C ends a call here, not the cluster.
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, start_new_session=True
            )
        self._end = weakref.finalize(self, _end, process, folder if dir is None else None)
        try:
            super().__init__(_endpoint(process, said, log, patience))
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        """Ends the cluster."""
        super().close()
        self._end()


def _binary() -> str:
    binary = os.environ.get("KINTSU_BIN") or shutil.which("kintsu")
    if binary is None or shutil.which(binary) is None:
        raise NotFoundError(
            "expected the kintsu program on PATH, or its path in KINTSU_BIN, got "
            f"{binary or 'neither'}; `cargo install --path crates/kintsu` in Kintsu's sources installs it"
        )
    return binary


def _endpoint(process: subprocess.Popen[bytes], said: Path, log: Path, patience: float) -> str:
    """Waits until the program has printed where it listens."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        ended = process.poll() is not None
        try:
            return str(json.JSONDecoder().raw_decode(said.read_text())[0]["listen"])
        except json.JSONDecodeError:
            if ended:
                break
        time.sleep(0.05)
    state = f"ended with code {process.returncode}" if process.poll() is not None else f"silence for {patience} s"
    raise ClusterError(f"expected a cluster that says where it listens, got {state}: {log.read_text()[-2000:]}")


def _end(process: subprocess.Popen[bytes], folder: Path | None) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
