"""The compiled loops that take a database's rows apart as they came over the wire.

PostgreSQL's binary COPY and MySQL's text protocol both send rows of fields, each with its length
before it. Rows lie one behind the other in one array of bytes.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["copy_bytes", "copy_reversed", "locate_lenenc", "locate_lengths"]

_NULL = np.uint8(0xFB)


@njit(cache=True)
def locate_lengths(data, starts, lengths):
    """Find the fields of PostgreSQL's rows: 16 bits of count, each field after 32 bits of length.

    Returns the number of rows; where a field begins and its length, −1 for null, are written to
    ``starts`` and ``lengths``, a line a field.
    """
    at, row, fields = 0, 0, starts.shape[0]
    while at + 2 <= len(data) and row < starts.shape[1]:
        if (data[at] << 8 | data[at + 1]) != fields:
            return -1 - row
        at += 2
        for field in range(fields):
            if at + 4 > len(data):
                return -1 - row
            size = (
                np.int64(data[at]) << 24
                | np.int64(data[at + 1]) << 16
                | np.int64(data[at + 2]) << 8
                | np.int64(data[at + 3])
            )
            at += 4
            starts[field, row] = at
            if size == 0xFFFFFFFF:
                lengths[field, row] = -1
            else:
                lengths[field, row] = size
                at += size
        if at > len(data):
            return -1 - row
        row += 1
    return row


@njit(cache=True)
def locate_lenenc(data, starts, lengths):
    """Find the fields of MySQL's rows: each after its length, in one to nine bytes."""
    at, row, fields = 0, 0, starts.shape[0]
    while at < len(data) and row < starts.shape[1]:
        for field in range(fields):
            if at >= len(data):
                return -1 - row
            first = data[at]
            at += 1
            if first == _NULL:
                starts[field, row], lengths[field, row] = at, -1
                continue
            size = np.int64(first)
            if first > _NULL:
                width = 2 if first == 0xFC else 3 if first == 0xFD else 8
                if at + width > len(data):
                    return -1 - row
                size = np.int64(0)
                for byte in range(width):
                    size |= np.int64(data[at + byte]) << (8 * byte)
                at += width
            starts[field, row], lengths[field, row] = at, size
            at += size
        if at > len(data):
            return -1 - row
        row += 1
    return row


@njit(cache=True)
def copy_bytes(data, starts, lengths, ends, out):
    """Put the bytes of one field of all rows one behind the other; ``ends`` has one more."""
    to = 0
    for row in range(len(starts)):
        begin = starts[row]
        for byte in range(max(0, lengths[row])):
            out[to] = data[begin + byte]
            to += 1
        ends[row + 1] = to


@njit(cache=True)
def copy_reversed(data, starts, lengths, width, out):
    """Turn numbers of ``width`` bytes into little endian; return the first of other width."""
    for row in range(len(starts)):
        if lengths[row] < 0:
            continue
        if lengths[row] != width:
            return row
        begin = starts[row]
        for byte in range(width):
            out[row * width + byte] = data[begin + width - 1 - byte]
    return -1
