"""Comparison and reliability of codes: counted exactly, never sampled.

:func:`kintsu.compare` is a table of codes that you name; this module has tables over parameters.
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
    empty, or would take more than about a minute, is refused; the error says what it would cost.
    """
    first, last = (n.start, n.stop - 1) if isinstance(n, range) else n
    found = _kintsu.study((first, last), max_overhead, families, min_distance)
    columns = ("family", "n", "k", "r", "arc", "nrc", "degraded", "overhead", "d", "rd_ratio")
    return Table({column: row[column] for column in columns} for row in found["rows"])


def reliability(code: Code | str, nodes: int, racks: int | None = None, **environment: float) -> dict[str, Any]:
    """Reliability: the mean time to data loss of a stripe and of a cluster, by a Markov chain.

    The nodes are spread evenly over ``racks`` (as many as nodes, if none are given), and stripes placed as on any cluster.
    ``environment`` changes assumptions about the cluster: ``node_mttf_h``, ``rack_mttf_h``, ``rack_outage_h``,
    ``node_bytes``, ``bandwidth`` (bytes per second of a node for repair), ``detection_h``, ``block_bytes``. The answer
    has all assumptions.
    """
    made = parse(code) if isinstance(code, str) else code
    return made._ready().reliability(nodes, nodes if racks is None else racks, _settings(environment))


def advise(
    nodes: int,
    racks: int | None = None,
    *,
    tolerate: int,
    overhead: float,
    objective: str = "balanced",
    survive_rack: bool = False,
    widest: int = 20,
    **environment: float,
) -> dict[str, Any]:
    """Recommends a built-in code for a cluster, with reasons.

    Any ``tolerate`` nodes may be lost, with ``survive_rack`` any one rack too; n / k is at most ``overhead`` and n at
    most ``widest``. ``objective`` says what should be cheap: ``degraded`` reads, ``recovery`` of nodes, or ``balanced``. In
    the answer ``advice`` has the best code of each family, best first, each with reasons and caveats. If no code fits,
    ``relaxations`` are changes of the requirements that would be enough.
    """
    return _kintsu.advise(
        nodes=nodes,
        racks=nodes if racks is None else racks,
        tolerate=tolerate,
        overhead=overhead,
        objective=objective,
        survive_rack=survive_rack,
        widest=widest,
        settings=_settings(environment),
    )


def _settings(environment: dict[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in environment.items()}
