"""Codes: written by subclassing or given as a matrix, proved, and used on buffers."""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _kintsu
from ._arrays import as_block, as_matrix
from ._kintsu import Dag
from .errors import InvalidError
from .report import Report, Table

if TYPE_CHECKING:
    from ._arrays import Bytes

USER = "user:"


class Code:
    """An erasure code: n blocks of w sub-blocks, of which the first k are data.

    Derive a class from it, set ``n``, ``k`` and ``w``, and write::

        def encode(self, dag): ...

    which joins every parity symbol. Vertex ``block * w + sub`` is sub-block ``sub`` of ``block``, and
    ``dag.join(parent, children, coefs)`` says that the parent is the sum of the children times their coefficients,
    over GF(2^8) (see :mod:`kintsu.gf`). The generator matrix follows from the graph. Two more methods are optional::

        def decode(self, dag, available, lost): ...

    joins the symbols of the ``lost`` block. It is called once for each block, with all others available. It may leave
    the dag empty; then the block is decoded from the generator, as are all losses of several blocks. ::

        def place(self): ...

    returns a partition of the blocks into lists that should be kept together, for example in one rack.

    Further attributes: ``name`` (default: that of the class), ``distance`` (a claim; default: the largest that can be
    proved), ``groups`` (lists of blocks; each block is computed from the others of its list), ``matrix`` (a
    generator; if there is also an ``encode``, its graph is proved against the matrix).

    A code is used only once all its graphs and claims have been proved, by :meth:`prove` or at the first use.
    """

    n: int
    k: int
    w: int = 1
    name: str | None = None
    distance: int | None = None
    groups: Sequence[Sequence[int]] = ()
    matrix: Any = None

    _proved: _kintsu.ProvedCode | None = None
    _rows: Bytes | None = None

    def __init_subclass__(cls, **named: Any) -> None:
        """Lets the methods that build graphs share their names with those that code buffers."""
        super().__init_subclass__(**named)
        for name in ("encode", "decode"):
            method = getattr(cls, name)
            if not hasattr(method, "on_graph"):
                setattr(cls, name, _either(method, getattr(Code, name).on_data))

    @staticmethod
    def from_generator(
        matrix: Any,
        n: int,
        k: int,
        w: int = 1,
        *,
        groups: Sequence[Sequence[int]] = (),
        distance: int | None = None,
        name: str = "matrix",
    ) -> Code:
        """A code given as its generator: n*w rows of k*w elements, the identity on top.

        The rows are lists, bytes, or those of a numpy array. It is checked when it is first used; see :meth:`prove`.
        """
        code = Code()
        code.n, code.k, code.w = n, k, w
        code.matrix, code.groups, code.distance, code.name = matrix, groups, distance, name
        return code

    # The methods of a code, on graphs or on buffers.

    def _no_encode(self, dag: Dag) -> None:
        raise InvalidError(f"invalid code {self._name()}: expected encode(self, dag) or a matrix, got neither")

    def _no_decode(self, dag: Dag, available: list[int], lost: list[int]) -> None:
        """Leaves the dag empty: the loss is decoded from the generator."""

    def _encode(self, data: Sequence[Any]) -> list[Bytes]:
        """The n - k parity blocks of k data blocks.

        A block is bytes, a bytearray, a memoryview or an array of uint8, read without a copy. All have the same
        length, a multiple of w: sub-blocks lie one after the other.
        """
        return self._ready().encode_blocks([as_block(f"block {i}", block) for i, block in enumerate(data)])

    def _decode(self, available: Mapping[int, Any], lost: Iterable[int]) -> dict[int, Bytes]:
        """Lost blocks, computed from available ones. Not all available blocks need be given, nor all lost ones requested.

        If the code has its own repair for this loss, it is used when the blocks that it reads are available.
        """
        blocks = [(index, as_block(f"block {index}", block)) for index, block in available.items()]
        return self._ready().decode_blocks(blocks, list(lost))

    # Completed below: `encode` and `decode` take a Dag or buffers.
    encode: Callable[..., Any]
    decode: Callable[..., Any]

    def place(self) -> list[list[int]]:
        """A partition of the blocks into lists that are best kept together."""
        return self._ready().place()

    # Proofs.

    def prove(self) -> Report:
        """Proves generator, graphs, groups and distance, each time again, and counts the cost of repairs.

        Raises :class:`kintsu.InvalidError`, which says what was expected and what came.
        """
        self._proved = self._define()
        return Report.of(self._proved.report())

    @property
    def generator(self) -> Bytes:
        """The proved generator: n*w rows of k*w elements."""
        return self._ready().generator()

    def encode_graph(self) -> Dag:
        """The graph that encodes; a notebook draws it."""
        return self._ready().encode_graph()

    def decode_graph(self, lost: Iterable[int], available: Iterable[int] | None = None) -> Dag:
        """The graph that computes lost blocks from available ones (all others, if none are named)."""
        lost = list(lost)
        if available is None:
            available = (block for block in range(self.n) if block not in lost)
        return self._ready().decode_graph(list(available), lost)

    def recoverable(self, lost: Iterable[int]) -> bool:
        """Whether the blocks that are left determine all others."""
        return self._ready().recoverable(list(lost))

    def solve(self, dag: Dag, targets: Sequence[int], sources: Sequence[int]) -> None:
        """Joins ``targets`` from ``sources``, with the coefficients that follow from the generator.

        For use in ``decode``, instead of solving the equations by hand. Unneeded sources are left out.
        """
        rows = self.generator if self._rows is None else self._rows
        dag.solve(list(targets), list(sources), rows)

    def definition(self) -> dict[str, Any] | None:
        """The code as data, as it is sent to a cluster; None for a built-in one, which every cluster knows."""
        return self._ready().definition()

    def to_json(self) -> str:
        """:meth:`definition` as text."""
        return json.dumps(self.definition())

    def __repr__(self) -> str:
        return f"<kintsu.Code {self._name()} ({self.n},{self.k}) w={self.w}>"

    def _name(self) -> str:
        return user_name(self.name or type(self).__name__.lower().strip("_"))

    def _ready(self) -> _kintsu.ProvedCode:
        if self._proved is None:
            self._proved = self._define()
        return self._proved

    def _define(self) -> _kintsu.ProvedCode:
        """Calls the class for its graphs and proves them."""
        n, k, w = self._shape()
        encode = None
        if self.matrix is None or type(self).encode is not Code.encode:
            encode = self._ask("encode", Dag(n, w))
        given = encode.generator(k) if encode is not None and self.matrix is None else self.matrix
        self._rows = as_matrix(given, n * w, k * w)
        repairs: list[Dag] = []
        if type(self).decode is not Code.decode:
            others = [[other for other in range(n) if other != block] for block in range(n)]
            asked = (self._ask("decode", Dag(n, w), others[block], [block]) for block in range(n))
            repairs = [dag for dag in asked if dag.targets]
        own_place = type(self).place is not Code.place
        return _kintsu.define(
            name=self._name(),
            n=n,
            k=k,
            w=w,
            generator=self._rows,
            groups=[list(group) for group in self.groups],
            distance=self.distance,
            place=[list(group) for group in self.place()] if own_place else None,
            encode=encode,
            repairs=repairs,
        )

    def _shape(self) -> tuple[int, int, int]:
        missing = [name for name in ("n", "k") if not hasattr(self, name)]
        if missing:
            raise InvalidError(f"invalid code {self._name()}: expected attributes n and k, got no {missing[0]}")
        try:
            n, k, w = map(operator.index, (self.n, self.k, self.w))
        except TypeError:
            n = k = w = 0
        if not 1 <= k < n <= 255 or w < 1:
            expected = "whole numbers with 1 <= k < n <= 255 and w >= 1"
            got = f"n={self.n!r}, k={self.k!r}, w={self.w!r}"
            raise InvalidError(f"invalid code {self._name()}: expected {expected}, got {got}")
        return n, k, w

    def _ask(self, method: str, dag: Dag, *more: Any) -> Dag:
        try:
            getattr(self, method)(dag, *more)
        except Exception as error:
            about = "".join(f" for the loss of {' '.join(f'b{b}' for b in lost)}" for lost in more[1:])
            raise InvalidError(
                f"{method} of {self._name()}{about}: expected a graph, got {type(error).__name__}: {error}"
            ) from error
        return dag


def user_name(name: str) -> str:
    """A name as clusters use it: ``user:NAME``, or that of a built-in code."""
    return name if ":" in name else USER + name


def _either(on_graph: Callable[..., Any], on_data: Callable[..., Any]) -> Callable[..., Any]:
    """One method for two callers: with a Dag it builds a graph, with buffers it codes them."""

    @functools.wraps(on_data)
    def method(self: Code, *given: Any, **named: Any) -> Any:
        graph = isinstance(given[0], Dag) if given else "dag" in named
        return (on_graph if graph else on_data)(self, *given, **named)

    method.on_graph, method.on_data = on_graph, on_data  # type: ignore[attr-defined]
    return method


Code.encode = _either(Code._no_encode, Code._encode)
Code.decode = _either(Code._no_decode, Code._decode)


class MadeCode(Code):
    """A code without a class: a built-in one, or one that a cluster keeps."""

    def __init__(self, proved: _kintsu.ProvedCode) -> None:
        self._proved = proved
        self.name, self.n, self.k, self.w = proved.name, proved.n, proved.k, proved.w
        self.distance, self.groups = proved.distance, proved.groups

    def _define(self) -> _kintsu.ProvedCode:
        return self._ready()


def parse(name: str) -> Code:
    """The built-in code with this name, such as ``rs:n=14,k=10``; :func:`families` lists what there is."""
    return MadeCode(_kintsu.parse(name))


def families() -> Table:
    """The families of built-in codes: name, keys, an example, what they are for."""

    def key(key: Mapping[str, Any]) -> str:
        return key["name"] if key["default"] is None else f"{key['name']}={key['default']}"

    def row(family: Mapping[str, Any]) -> dict[str, Any]:
        keys = ", ".join(map(key, family["keys"]))
        return {"name": family["name"], "keys": keys, "example": family["example"], "about": family["about"]}

    return Table(map(row, _kintsu.families()))


def compare(codes: Iterable[Code | str]) -> Table:
    """A row for each code, given as an object or by name. All values are counted on proved graphs.

    ``arc`` is blocks read for an average repair, ``nrc`` the same for each data block, ``degraded`` blocks read for an
    average degraded read, ``d`` the distance, ``rd_ratio`` nrc / d, ``moved`` blocks moved for an average repair.
    """
    made = (parse(code) if isinstance(code, str) else code for code in codes)
    return Table(code.prove().row() for code in made)
