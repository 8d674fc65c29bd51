"""Buffers and matrices as numpy arrays, without copying if possible."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import InvalidError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]


def as_block(what: str, buffer: Any) -> Bytes:
    """A one-dimensional view of a buffer's bytes. Nothing is copied; a buffer that cannot be viewed is refused."""
    if isinstance(buffer, np.ndarray):
        if buffer.dtype != np.uint8 or buffer.ndim != 1 or not buffer.flags.c_contiguous:
            raise InvalidError(
                f"invalid {what}: expected a contiguous one-dimensional array of uint8, "
                f"got {buffer.ndim} dimension(s) of {buffer.dtype}"
                f"{'' if buffer.flags.c_contiguous else ', not contiguous'}"
            )
        return buffer
    try:
        return np.frombuffer(buffer, dtype=np.uint8)
    except (TypeError, ValueError, BufferError) as error:
        if isinstance(buffer, (bytes, bytearray, memoryview)) and not len(buffer):
            return np.empty(0, dtype=np.uint8)
        raise InvalidError(
            f"invalid {what}: expected contiguous bytes (bytes, bytearray, memoryview, numpy uint8), "
            f"got {type(buffer).__name__}"
        ) from error


def as_matrix(rows: Any, height: int, width: int) -> Bytes:
    """A matrix of elements from lists, bytes or an array, if it has this shape and fits the field."""
    if isinstance(rows, np.ndarray) and rows.ndim == 2:
        lists: Sequence[Iterable[Any]] = rows.tolist()
    else:
        try:
            lists = [list(row) for row in rows]
        except TypeError as error:
            raise InvalidError(f"invalid generator: expected rows of numbers, got {type(rows).__name__}") from error
    shape = f"{height} rows of {width} elements"
    if len(lists) != height:
        raise InvalidError(f"invalid generator: expected {shape} (n*w x k*w), got {len(lists)} rows")
    matrix = np.zeros((height, width), dtype=np.uint8)
    for i, row in enumerate(lists):
        entries = list(row)
        if len(entries) != width:
            raise InvalidError(f"invalid generator: expected {shape} (n*w x k*w), got {len(entries)} in row {i}")
        for j, entry in enumerate(entries):
            matrix[i, j] = as_element(f"entry ({i}, {j}) of the generator", entry)
    return matrix


def as_element(what: str, value: Any) -> int:
    """An element of GF(2^8)."""
    try:
        number = int(value.__index__())
    except AttributeError as error:
        if isinstance(value, float) and value.is_integer():
            number = int(value)
        else:
            raise InvalidError(f"invalid {what}: expected an element of GF(2^8), 0 to 255, got {value!r}") from error
    if not 0 <= number <= 255:
        raise InvalidError(f"invalid {what}: expected an element of GF(2^8), 0 to 255, got {number}")
    return number
