"""Codes weighed against each other, and against time: counted exactly, never sampled.

:func:`kintsu.compare` is the table of codes that you name; this module has the tables over parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _kintsu
from .code import Code, parse
from .report import Table


def study(
    n: range | tuple[int, int] = (9, 19),
    max_overhead: float = 2.0,
    *,
    families: Sequence[str] | None = None,
    min_distance: int = 1,
) -> Table:
    """The comparison of the LRC study: a row for every (n, k, r) for which a family is defined.

    ``n`` is a range, or its first and last value; ``families`` are those of the study if none are named. A range that is
    empty, or would take more than a minute or so, is refused with what it would cost.
    """
    first, last = (n.start, n.stop - 1) if isinstance(n, range) else n
    found = _kintsu.study((first, last), max_overhead, families, min_distance)
    columns = ("family", "n", "k", "r", "arc", "nrc", "degraded", "overhead", "d", "rd_ratio")
    return Table({column: row[column] for column in columns} for row in found["rows"])


def reliability(
    code: Code | str,
    nodes: int,
    racks: Sequence[Sequence[int]] | None = None,
    **environment: float,
) -> dict[str, Any]:
    """How long data live: the mean time to data loss of a stripe and of a cluster, by a Markov chain.

    ``racks`` lists the blocks of a stripe in each rack, where the loss of racks counts too. ``environment`` changes what
    the cluster is like: ``node_mttf_h``, ``rack_mttf_h``, ``rack_outage_h``, ``node_bytes``, ``bandwidth`` (bytes per second of
    a node for repair), ``detection_h``, ``block_bytes``. What was assumed is in the answer.
    """
    made = parse(code) if isinstance(code, str) else code
    lists = None if racks is None else [list(blocks) for blocks in racks]
    return made._ready().reliability(nodes, lists, {name: float(value) for name, value in environment.items()})
