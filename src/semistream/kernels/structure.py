"""Whether an index and its pages hold what they say: asked once, where a checksum is computed.

A checksum tells that bytes are those that were written, not that whoever wrote them was right. What
is found here to fit can be followed by compiled code that has no bounds checks of its own.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from semistream.kernels.memory import (
    array_int32,
    array_int64,
    load_byte,
    load_int32,
    load_int64,
    unsigned_int16,
)

__all__ = ["FIXED", "LARGE_LIST", "LARGE_TEXT", "LIST", "NOTHING", "STRUCT", "TEXT", "UNION"]
__all__ += ["first_unsound", "index_fits", "page_fits"]

# How a node of a record batch, a column or a part of a nested one, lies in buffers.
NOTHING, FIXED, TEXT, LARGE_TEXT, LIST, LARGE_LIST, STRUCT, UNION = range(8)

_BLOCK = 4096  # bytes: parts begin at a multiple, as direct reads demand
_CODE = 8  # bytes of a row's code
_MOST = 1 << 40  # values of a node; no part has as many bytes
_RECORD_BATCH = 3  # in MessageHeader of Message.fbs


@njit(cache=True)
def index_fits(code, offset, length, rows, widest, starts):
    """Return the first part whose line does not follow from those before it, −1 where all do.

    Returns
    -------
    tuple
        That part, and where the last part ends.
    """
    end = np.int64(0)
    for i in range(len(code)):
        begins = i == 0 or code[i] > code[i - 1]
        if starts[i] != begins or (i > 0 and code[i] < code[i - 1]) or offset[i] != end:
            return i, end
        if length[i] <= 0 or not 0 < rows[i] <= length[i] // _CODE:
            return i, end
        if not 0 <= widest[i] <= length[i]:
            return i, end
        end += (np.int64(length[i]) + _BLOCK - 1) // _BLOCK * _BLOCK
    return -1, end


@njit(cache=True, inline="always")
def _table(address, low, high):
    """Return the FlatBuffers table that an offset refers to, 0 where it is out of bounds."""
    table = address + np.int64(load_int32(address)) if low <= address <= high - 4 else np.int64(0)
    if not low <= table <= high - 4:
        return np.int64(0)
    lines = table - np.int64(load_int32(table))
    if not low <= lines <= high - 4 or lines + unsigned_int16(lines) > high:
        return np.int64(0)
    return table


@njit(cache=True, inline="always")
def _field(table, number, size, high):
    """Return where a field of so many bytes lies, 0 where it is not there, −1 behind the bounds."""
    lines = table - np.int64(load_int32(table))
    if 6 + 2 * number > unsigned_int16(lines):
        return np.int64(0)
    offset = unsigned_int16(lines + 4 + 2 * number)
    if offset == 0:
        return np.int64(0)
    return table + offset if table + offset + size <= high else np.int64(-1)


@njit(cache=True, inline="always")
def _pairs(table, number, count, low, high):
    """Return where a vector of ``count`` pairs of 64 bits begins, 0 where it is not like that."""
    field = _field(table, number, 4, high)
    if field <= 0:
        return np.int64(0)
    start = field + np.int64(load_int32(field))
    if not low <= start <= high - 4 - 16 * count or load_int32(start) != count:
        return np.int64(0)
    return start + 4


@njit(cache=True)
def _ascends(offsets, most):
    descends = offsets[0] < 0 or offsets[-1] > most
    for i in range(1, len(offsets)):
        descends |= offsets[i] < offsets[i - 1]
    return not descends


@njit(cache=True, inline="always")
def _ascend(base, count, wide, most):
    """Whether ``count + 1`` offsets ascend from 0 or more to at most ``most``."""
    if wide:
        return _ascends(array_int64(base, count + 1), most)
    return _ascends(array_int32(base, count + 1), most)


@njit(cache=True, inline="always")
def _are_allowed(base, count, low, high):
    """Whether ``count`` bytes are numbers of bits that are set in these two words."""
    for i in range(count):
        number = np.int64(load_byte(base + i))
        if number > 127 or not (low if number < 64 else high) >> (number & 63) & 1:
            return False
    return True


@njit(cache=True)
def _batch(page, length, count, buffers):
    """Find a record batch: its nodes, its buffers and its body; zeros where it is not sound."""
    nothing = (np.int64(0), np.int64(0), np.int64(0))
    if length < 16 or load_int32(page) != -1:
        return nothing
    low, size = page + 8, np.int64(load_int32(page + 4))
    high = low + size
    if not 8 <= size <= length - 8 or size & 7:
        return nothing
    message = _table(low, low, high)
    kind = _field(message, 1, 1, high) if message else np.int64(0)
    header = _field(message, 2, 4, high) if kind > 0 else np.int64(0)
    body = _field(message, 3, 8, high) if header > 0 else np.int64(0)
    if body <= 0 or load_byte(kind) != _RECORD_BATCH or load_int64(body) != page + length - high:
        return nothing
    batch = _table(header, low, high)
    if batch == 0 or _field(batch, 3, 1, high) != 0:  # pages are not compressed
        return nothing
    return _pairs(batch, 1, count, low, high), _pairs(batch, 2, buffers, low, high), high


@njit(cache=True, inline="always")
def _buffers_lie_within(entries, count, room):
    for i in range(count):
        start, size = load_int64(entries + 16 * i), load_int64(entries + 16 * i + 8)
        if start & 7 or not 0 <= start <= room or not 0 <= size <= room - start:
            return False
    return True


@njit(cache=True, inline="always")
def _counts_fit(found, n, rows, above, share):
    """Whether a node has as many values as the one above it asks for, and no more nulls."""
    count, nulls = load_int64(found + 16 * n), load_int64(found + 16 * n + 8)
    least = rows
    if above >= 0:
        least = load_int64(found + 16 * above)
        if share > 0 and least > _MOST // share:
            return False
        least *= share
    return least <= count <= _MOST and 0 <= nulls <= count and (above >= 0 or count == rows)


@njit(cache=True, inline="always")
def _values_fit(kind, count, bits, base, held, allowed):
    """Whether a buffer of ``held`` bytes has room for values of fixed width, or a union's types."""
    if kind == FIXED:
        return bits == 0 or count <= 8 * held // bits
    return count <= held and _are_allowed(base, count, allowed[0], allowed[1])


@njit(cache=True, inline="always")
def _offsets_fit(count, base, held, wide, most):
    return count == 0 or (
        count + 1 <= held // (8 if wide else 4) and _ascend(base, count, wide, most)
    )


@njit(cache=True)
def page_fits(page, length, rows, nodes, buffers):
    """Return whether a page is a record batch that can be read without leaving it.

    Parameters
    ----------
    page, length, rows
        Its address, its bytes, and the rows that it must have.
    nodes
        Of each node: how it lies in buffers, the bits of a value, the node above it or −1, how many
        of its values a value of that one has, and for a union which types there are.
    buffers
        How many buffers there must be.
    """
    found, entries, body = _batch(page, length, len(nodes), buffers)
    if found == 0 or entries == 0:
        return False
    if not _buffers_lie_within(entries, buffers, page + length - body):
        return False
    entry = entries  # of the next buffer: where it begins in the body, and its bytes
    for n in range(len(nodes)):
        kind, count = nodes[n, 0], load_int64(found + 16 * n)
        if not _counts_fit(found, n, rows, nodes[n, 2], nodes[n, 3]):
            return False
        if kind not in (NOTHING, UNION):  # these have no validity
            held = load_int64(entry + 8)
            if 8 * held < count and (held > 0 or load_int64(found + 16 * n + 8) > 0):
                return False
            entry += 16
        if kind in (NOTHING, STRUCT):
            continue
        base, held = body + load_int64(entry), load_int64(entry + 8)
        entry += 16
        if kind in (FIXED, UNION):
            if not _values_fit(kind, count, nodes[n, 1], base, held, nodes[n, 4:]):
                return False
            continue
        most = load_int64(found + 16 * n + 16)  # values of the list, which are the next node's
        if kind in (TEXT, LARGE_TEXT):
            most = load_int64(entry + 8)
            entry += 16
        if not _offsets_fit(count, base, held, kind in (LARGE_TEXT, LARGE_LIST), most):
            return False
    return True


@njit(cache=True)
def first_unsound(pages, lengths, rows, nodes, buffers):
    """Return the first of several pages that is not such a record batch, −1 where all are."""
    for i in range(len(pages)):
        if not page_fits(pages[i], np.int64(lengths[i]), np.int64(rows[i]), nodes, buffers):
            return i
    return -1
