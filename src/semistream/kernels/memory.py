"""Compiled access to Arrow memory by address: gathers over many pages in one call.

An Arrow call on a page costs 10 to 30 µs whatever its size. These loops take the values of many
rows out of many pages, each known by the addresses of its buffers, and write them where they stay.
The buffer of row i's page begins at ``start[block[i]] + offset[block[i]]``, an offset of 0 says
that there is none; ``position[i]`` is the row there. Whoever calls keeps the memory alive, and has
checked that the positions exist.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import carray, njit, types  # type: ignore[attr-defined]
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = [
    "array_int32",
    "array_int64",
    "buffer_offsets",
    "gather_bits",
    "gather_columns",
    "gather_ends",
    "gather_fixed",
    "gather_rows",
    "gather_texts",
    "load_byte",
    "load_int32",
    "load_int64",
    "note_pages",
    "prefetch",
    "store_int32",
    "unsigned_int16",
]


def _load(bits, result):
    """Make an intrinsic that reads an integer at any address, aligned or not."""

    @intrinsic
    def load(_context, _address):
        def generate(_, builder, __, arguments):
            pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            return builder.load(pointer, align=1)

        return result(types.int64), generate

    return load


def _array(kind):
    """Make an intrinsic that takes memory at an address for an array, which vectorizes."""

    @intrinsic
    def pointer(_context, _address):
        def generate(context, builder, signature, arguments):
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(types.int64), generate

    @njit(cache=True, inline="always")
    def array(address, count):
        return carray(pointer(address), (count,))

    return array


def _store(bits, kind):
    """Make an intrinsic that writes an integer at any address, aligned or not."""

    @intrinsic
    def store(_context, _address, _value):
        def generate(context, builder, _, arguments):
            pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
            builder.store(arguments[1], pointer, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, kind), generate

    return store


@intrinsic
def _copy(_context, _target, _source, _size):
    def generate(context, builder, _, arguments):
        byte = ir.IntType(8).as_pointer()
        target, source = (builder.inttoptr(a, byte) for a in arguments[:2])
        cgutils.raw_memcpy(builder, target, source, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


def _move(size):
    """Make an intrinsic that copies so many bytes by one load and one store."""

    @intrinsic
    def move(_context, _target, _source):
        def generate(context, builder, _, arguments):
            kind = ir.VectorType(ir.IntType(8), size).as_pointer()
            target, source = (builder.inttoptr(a, kind) for a in arguments)
            builder.store(builder.load(source, align=1), target, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return move


@intrinsic
def prefetch(_context, _address):
    """Ask the processor for the memory at an address, and do not wait; any address is allowed."""

    def generate(context, builder, _, arguments):
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        call = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        read, keep, data = (ir.Constant(number, value) for value in (0, 3, 1))
        builder.call(call, [builder.inttoptr(arguments[0], byte), read, keep, data])
        return context.get_dummy_value()

    return types.void(types.int64), generate


def _fence(order):
    """Make an intrinsic that keeps memory accesses before it from passing those after it."""

    @intrinsic
    def fence(_context):
        def generate(context, builder, _, __):
            builder.fence(order)
            return context.get_dummy_value()

        return types.void(), generate

    return fence


_TILE = 64  # rows of a column whose memory is asked for before it is read
_AHEAD = 32  # rows: so far ahead their memory is asked for
_LINES = 320  # that are asked for together; the processor's first cache has 512 or more
_LINE = 64  # bytes that come together
_MOST_MOVED = 256  # bytes; more are copied by memcpy, which is slow to start

array_int32 = _array(types.int32)
array_int64 = _array(types.int64)
load_int64 = _load(64, types.int64)
load_int32 = _load(32, types.int32)
load_int16 = _load(16, types.int16)
load_byte = _load(8, types.uint8)
_store_int64 = _store(64, types.int64)
store_int32 = _store(32, types.int32)
_fence_acquire = _fence("acquire")
_fence_release = _fence("release")


_move_16 = _move(16)
_move_32 = _move(32)


@njit(cache=True, inline="always")
def _copy_wide(out, source, width):
    """Copy at least 16 bytes in pieces that may overlap, but never reach over the value's ends."""
    if width > _MOST_MOVED:
        _copy(out, source, width)
    elif width >= 32:
        for at in range(0, width - 32, 32):
            _move_32(out + at, source + at)
        _move_32(out + width - 32, source + width - 32)
    else:
        _move_16(out, source)
        _move_16(out + width - 16, source + width - 16)


@njit(cache=True)
def _copy_values(sources, width, out):
    """Copy values from these addresses side by side; of each width its own loop."""
    if width == 8:
        for i in range(len(sources)):
            _store_int64(out + 8 * i, load_int64(sources[i]))
    elif width == 4:
        for i in range(len(sources)):
            store_int32(out + 4 * i, load_int32(sources[i]))
    elif width >= 16:
        for i in range(len(sources)):
            _copy_wide(out + width * i, sources[i], width)
    else:
        for i in range(len(sources)):
            _copy(out + width * i, sources[i], width)


@njit(cache=True, inline="always")
def _expect_values(start, offset, block, position, width, sources):
    """Note where some values lie, and ask for their first two lines; others come by themselves."""
    far = min(width, _LINE + 1) - 1
    for i in range(len(sources)):
        source = start[block[i]] + offset[block[i]] + width * np.int64(position[i])
        sources[i] = source
        prefetch(source)
        if far >= _LINE // 2:
            prefetch(source + far)


@njit(cache=True)
def gather_fixed(start, offset, block, position, width, out):
    """Copy values of ``width`` bytes to the address ``out``."""
    sources = np.empty(_TILE, np.int64)
    for begin in range(0, len(block), _TILE):
        end = min(begin + _TILE, len(block))
        some = sources[: end - begin]
        _expect_values(start, offset, block[begin:end], position[begin:end], width, some)
        _copy_values(some, width, out + width * begin)


@njit(cache=True)
def gather_rows(start, offsets, lines, widths, block, position, outs, first):
    """Copy values of several columns, from row ``first`` of the outputs on.

    Line ``lines[c]`` of ``offsets`` has column c's values. The memory of some rows is asked for in
    all columns before any of it is read: a row that is not in the processor's cache has a line or
    two in every column, and to wait for them one by one would be most of the work.
    """
    _fence_acquire()  # another process may have noted a page: its offsets are read after that
    columns = len(lines)
    tile = max(4, _LINES // max(1, columns))
    sources = np.empty((columns, tile), np.int64)
    for begin in range(0, len(block), tile):
        end = min(begin + tile, len(block))
        some, rows = block[begin:end], position[begin:end]
        for c in range(columns):
            offset, places = offsets[lines[c]], sources[c, : end - begin]
            _expect_values(start, offset, some, rows, widths[c], places)
        for c in range(columns):
            out = outs[c] + (first + begin) * widths[c]
            _copy_values(sources[c, : end - begin], widths[c], out)


@njit(cache=True)
def gather_columns(start, offsets, lines, widths, block, position, outs, first):
    """Copy values likewise of columns without nulls; the line before the values' is validity.

    Returns
    -------
    bool
        False, and nothing is done, where a page has nulls.
    """
    for c in range(len(lines)):
        for b in range(len(start)):
            if offsets[lines[c] - 1, b] != 0:
                return False
    gather_rows(start, offsets, lines, widths, block, position, outs, first)
    return True


@njit(cache=True)
def gather_bits(start, offset, block, position, out, first):
    """Copy bits into the zeroed ``out`` from bit ``first`` on; where there is no buffer, a one.

    Returns
    -------
    int
        How many of them are zero.
    """
    zeros = 0
    for i in range(len(block)):
        row, one = np.int64(position[i]), np.uint8(1)
        if offset[block[i]] != 0:
            byte = load_byte(start[block[i]] + offset[block[i]] + (row >> 3))
            one = (byte >> np.uint8(row & 7)) & np.uint8(1)
        zeros += 1 - np.int64(one)
        at = first + i
        out[at >> 3] |= one << np.uint8(at & 7)
    return zeros


@njit(cache=True, inline="always")
def _bound(base, row, wide):
    """Return an offset of a column of texts, of 32 or 64 bits."""
    return load_int64(base + 8 * row) if wide else np.int64(load_int32(base + 4 * row))


@njit(cache=True)
def gather_ends(start, offset, block, position, wide, ends):
    """Write where each text ends when all lie side by side; return the bytes of all."""
    total, last = np.int64(0), len(block) - 1
    size = 8 if wide else 4
    ends[0] = 0
    for i in range(len(block)):
        k = min(i + _AHEAD, last)
        prefetch(start[block[k]] + offset[block[k]] + size * np.int64(position[k]))
        base, row = start[block[i]] + offset[block[i]], np.int64(position[i])
        total += _bound(base, row + 1, wide) - _bound(base, row, wide)
        ends[i + 1] = total
    return total


@njit(cache=True)
def gather_texts(start, offset, data, block, position, wide, out):
    """Copy texts side by side to the address ``out``; ``data`` are the offsets of their bytes."""
    last = len(block) - 1
    for i in range(len(block)):
        k = min(i + _AHEAD // 2, last)  # its bounds were read when ends were
        bounds = start[block[k]] + offset[block[k]]
        prefetch(start[block[k]] + data[block[k]] + _bound(bounds, np.int64(position[k]), wide))
        page, row = start[block[i]], np.int64(position[i])
        bounds = page + offset[block[i]]
        first = _bound(bounds, row, wide)
        size = _bound(bounds, row + 1, wide) - first
        _copy(out, page + data[block[i]] + first, size)
        out += size


@njit(cache=True, inline="always")
def unsigned_int16(address):
    """Return a word of 16 bits without a sign: a FlatBuffers header may be larger than 32 KB."""
    return np.int64(load_int16(address)) & 0xFFFF


@njit(cache=True, inline="always")
def _field(table, number):
    """Return the address of a field of a FlatBuffers table, 0 where it is not there."""
    lines = table - np.int64(load_int32(table))
    if 6 + 2 * number > unsigned_int16(lines):
        return np.int64(0)
    offset = unsigned_int16(lines + 4 + 2 * number)
    return table + offset if offset else np.int64(0)


@njit(cache=True, inline="always")
def _follow(address):
    return address + np.int64(load_int32(address))


@njit(cache=True)
def buffer_offsets(message, numbers, out, lines, nulls):
    """Write where these buffers of an encapsulated Arrow record batch begin, 0 for empty ones.

    ``message`` is the address of its first byte, from which offsets count; it was found sound (see
    `semistream.kernels.structure.page_fits`). By Message.fbs of the
    Arrow format, field 2 of a Message is its header, field 2 of a RecordBatch its buffers: pairs
    of offset and length. ``nulls[c]`` is set where the line before ``lines[c]``, the validity of
    column c, is not empty; it is never cleared, for another process may have set it meanwhile.
    """
    body = 8 + np.int64(load_int32(message + 4))
    header = _follow(_field(_follow(message + 8), 2))
    buffers = _follow(_field(header, 2)) + 4
    for i in range(len(numbers)):
        entry = buffers + 16 * numbers[i]
        out[i] = body + load_int64(entry) if load_int64(entry + 8) > 0 else 0
    for c in range(len(lines)):
        if out[lines[c] - 1] != 0:
            nulls[c] = True


@njit(cache=True)
def note_pages(messages, numbers, offsets, first, lines, nulls):
    """Write where these buffers of messages begin, from column ``first`` of ``offsets`` on.

    Of each message the first buffer is written last: it tells others of the rest.
    """
    found = np.empty(len(numbers), dtype=np.int32)
    for i in range(len(messages)):
        buffer_offsets(messages[i], numbers, found, lines, nulls)
        offsets[1:, first + i] = found[1:]
        _fence_release()
        offsets[0, first + i] = found[0]
