"""Kintsu: erasure codes as programs. Write one, prove it, compare it, store files with it.

    >>> import kintsu
    >>> code = kintsu.parse("azure-lrc:n=10,k=6,r=3")
    >>> code.prove().distance
    4
    >>> parity = code.encode([bytes(range(8))] * 6)

:class:`Code` explains how to write your own code, :class:`Cluster` how to store files with it.
"""

import numpy as _numpy  # noqa: F401  (the native half returns its arrays)

from . import analysis, gf
from ._kintsu import Dag
from .cluster import Cluster, LocalCluster
from .code import Code, compare, families, parse
from .errors import (
    ClusterError,
    ExistsError,
    InvalidError,
    KintsuError,
    NotFoundError,
    UnreachableError,
    UnrecoverableError,
)
from .report import LossCount, RepairCost, Report, Table

__all__ = [
    "Cluster",
    "ClusterError",
    "Code",
    "Dag",
    "ExistsError",
    "InvalidError",
    "KintsuError",
    "LocalCluster",
    "LossCount",
    "NotFoundError",
    "RepairCost",
    "Report",
    "Table",
    "UnreachableError",
    "UnrecoverableError",
    "analysis",
    "compare",
    "families",
    "gf",
    "parse",
]
