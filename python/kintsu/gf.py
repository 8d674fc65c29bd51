"""Elements of GF(2^8) with the polynomial 0x11D: whole numbers from 0 to 255. Their sum is ``a ^ b``."""

from __future__ import annotations

from ._kintsu import field_inverse as _inverse
from ._kintsu import field_multiply as _multiply

__all__ = ["div", "inv", "mul"]


def mul(a: int, b: int) -> int:
    """The product."""
    return _multiply(a, b)


def inv(a: int) -> int:
    """The element whose product with ``a`` is 1. There is none for 0."""
    return _inverse(a)


def div(a: int, b: int) -> int:
    """``a`` times the inverse of ``b``."""
    return _multiply(a, _inverse(b))
