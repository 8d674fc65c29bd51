"""What was proved about a code, and tables of codes, for people and notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any


@dataclass(frozen=True)
class RepairCost:
    """The cost of repairing one block from all others, in blocks."""

    block: int
    read: float
    """Read from disks."""
    moved: float
    """Sent to the requestor, after helpers have combined."""
    helpers: int
    """Blocks that are read at least in part."""


@dataclass(frozen=True)
class LossCount:
    """How many patterns of a number of lost blocks can be decoded."""

    losses: int
    patterns: int | None
    recoverable: int | None
    """None if there are too many patterns to count."""
    fraction: float | None


@dataclass(frozen=True)
class Report:
    """A proof of a code: every claim in it was computed, none is assumed."""

    name: str
    n: int
    k: int
    w: int
    distance: int
    """Any ``distance - 1`` lost blocks can be decoded."""
    exact: bool | None
    """Whether some loss of ``distance`` blocks cannot be decoded; None if that was not counted."""
    overhead: float
    """n / k."""
    locality: int
    """Most blocks that the repair of a data block reads from."""
    repairs: tuple[RepairCost, ...]
    """The cost of the repair of each block, counted on the proved graph."""
    arc: float
    """Average repair cost: blocks read, over all blocks."""
    nrc: float
    """Normalised repair cost: blocks read over all blocks, for each data block."""
    degraded: float
    """Average cost of a degraded read of a data block."""
    rd_ratio: float
    """nrc / distance."""
    losses: tuple[LossCount, ...]
    """For each number of losses how many patterns can be decoded."""
    groups: tuple[tuple[int, ...], ...]
    """Local repair groups."""
    place: tuple[tuple[int, ...], ...]
    """Groups of blocks to be kept together."""
    proved_graphs: int
    """How many graphs were proved against the generator: the encode graph, and a repair for each block."""

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Report:
        """Makes the proof from the result of the native half."""
        check = facts["check"]
        costs = check["costs"]
        return cls(
            name=check["name"],
            n=check["n"],
            k=check["k"],
            w=check["w"],
            distance=check["distance"],
            exact=check["exact"],
            overhead=costs["overhead"],
            locality=check["locality"]["data"],
            arc=costs["arc"],
            nrc=costs["nrc"],
            degraded=costs["degraded"],
            rd_ratio=costs["rd_ratio"],
            repairs=tuple(RepairCost(**repair) for repair in costs["per_block"]),
            losses=tuple(LossCount(**count) for count in check["losses"]),
            groups=tuple(map(tuple, facts["groups"])),
            place=tuple(map(tuple, facts["place"])),
            proved_graphs=check["proved_graphs"],
        )

    def row(self) -> dict[str, Any]:
        """The row of this code in :func:`kintsu.compare`."""
        return {
            "code": self.name,
            "n": self.n,
            "k": self.k,
            "w": self.w,
            "d": self.distance,
            "overhead": self.overhead,
            "arc": self.arc,
            "nrc": self.nrc,
            "degraded": self.degraded,
            "rd_ratio": self.rd_ratio,
            "moved": sum(repair.moved for repair in self.repairs) / self.n,
        }

    def _facts(self) -> Table:
        known = [count for count in self.losses if count.fraction is not None and count.losses]
        return Table(
            [
                {"claim": "graphs", "proved": f"{self.proved_graphs} against the generator"},
                {"claim": "distance", "proved": f"{self.distance}: any {self.distance - 1} losses can be decoded"},
                {"claim": "losses", "proved": ", ".join(f"{c.losses}: {c.fraction:.4g}" for c in known)},
                {"claim": "overhead", "proved": f"{self.overhead:.4g}"},
                {"claim": "repair", "proved": f"{self.arc:.4g} blocks read on average, {self.nrc:.4g} per data block"},
                {"claim": "degraded read", "proved": f"{self.degraded:.4g} blocks, from {self.locality} at most"},
                {"claim": "groups", "proved": _lists(self.groups) or "none"},
            ]
        )

    def _repairs(self) -> Table:
        return Table(
            {"block": f"b{r.block}", "read": r.read, "moved": r.moved, "helpers": r.helpers} for r in self.repairs
        )

    def _title(self) -> str:
        return f"{self.name}: ({self.n},{self.k}), w = {self.w}, proved"

    def __repr__(self) -> str:
        return f"{self._title()}\n{self._facts()!r}\n{self._repairs()!r}"

    def _repr_html_(self) -> str:
        tables = self._facts()._repr_html_() + self._repairs()._repr_html_()
        return f"<h4>{escape(self._title())}</h4>{tables}"


class Table(list[dict[str, Any]]):
    """Rows that print, and show in a notebook, as a table."""

    def __init__(self, rows: Iterable[dict[str, Any]] = ()) -> None:
        super().__init__(rows)

    def columns(self) -> list[str]:
        """The keys of all rows, in order of first use."""
        return list(dict.fromkeys(key for row in self for key in row))

    def _cells(self) -> list[list[str]]:
        columns = self.columns()
        return [columns, *([_cell(row.get(column)) for column in columns] for row in self)]

    def __repr__(self) -> str:
        cells = self._cells()
        widths = [max(map(len, column)) for column in zip(*cells)]
        lines = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head, *body = self._cells()
        return f"<table>{_line(head, 'th')}{''.join(_line(cells, 'td') for cells in body)}</table>"


def _line(cells: Iterable[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _lists(lists: Iterable[Iterable[int]]) -> str:
    return "; ".join(" ".join(f"b{block}" for block in blocks) for blocks in lists)
