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
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from semistream.kernels import GONE, WAITING

__all__ = [
    "buffer_offsets",
    "gather_bits",
    "gather_columns",
    "gather_ends",
    "gather_fixed",
    "gather_texts",
    "locate",
    "match_run",
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


_TILE = 256  # rows whose pages are guessed before they are looked at

_load_int64 = _load(64, types.int64)
_load_int32 = _load(32, types.int32)
_load_int16 = _load(16, types.int16)
_load_byte = _load(8, types.uint8)
_store_int64 = _store(64, types.int64)
_store_int32 = _store(32, types.int32)


@njit(cache=True)
def gather_fixed(start, offset, block, position, width, out):
    """Copy values of ``width`` bytes to the address ``out``."""
    if width == 8:
        for i in range(len(block)):
            page = start[block[i]] + offset[block[i]]
            _store_int64(out + 8 * i, _load_int64(page + 8 * position[i]))
    elif width == 4:
        for i in range(len(block)):
            page = start[block[i]] + offset[block[i]]
            _store_int32(out + 4 * i, _load_int32(page + 4 * position[i]))
    else:
        for i in range(len(block)):
            page = start[block[i]] + offset[block[i]]
            _copy(out + width * i, page + width * position[i], width)


@njit(cache=True)
def gather_columns(start, offsets, lines, widths, block, position, outs, first):
    """Copy values of several columns without nulls, from row ``first`` of the outputs on.

    Line ``lines[c]`` of ``offsets`` has column c's values, the line before its validity.

    Returns
    -------
    bool
        False, and nothing is done, where a page has nulls.
    """
    for c in range(len(lines)):
        for b in range(len(start)):
            if offsets[lines[c] - 1, b] != 0:
                return False
    for c in range(len(lines)):
        out = outs[c] + first * widths[c]
        gather_fixed(start, offsets[lines[c]], block, position, widths[c], out)
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
            byte = _load_byte(start[block[i]] + offset[block[i]] + (row >> 3))
            one = (byte >> np.uint8(row & 7)) & np.uint8(1)
        zeros += 1 - np.int64(one)
        at = first + i
        out[at >> 3] |= one << np.uint8(at & 7)
    return zeros


@njit(cache=True, inline="always")
def _bound(base, row, wide):
    """Give an offset of a column of texts, of 32 or 64 bits."""
    return _load_int64(base + 8 * row) if wide else np.int64(_load_int32(base + 4 * row))


@njit(cache=True)
def gather_ends(start, offset, block, position, wide, ends):
    """Write where each text ends when all lie side by side; give the bytes of all."""
    total = np.int64(0)
    ends[0] = 0
    for i in range(len(block)):
        base, row = start[block[i]] + offset[block[i]], np.int64(position[i])
        total += _bound(base, row + 1, wide) - _bound(base, row, wide)
        ends[i + 1] = total
    return total


@njit(cache=True)
def gather_texts(start, offset, data, block, position, wide, out):
    """Copy texts side by side to the address ``out``; ``data`` are the offsets of their bytes."""
    for i in range(len(block)):
        page, row = start[block[i]], np.int64(position[i])
        bounds = page + offset[block[i]]
        first = _bound(bounds, row, wide)
        size = _bound(bounds, row + 1, wide) - first
        _copy(out, page + data[block[i]] + first, size)
        out += size


@njit(cache=True, inline="always")
def _field(table, number):
    """Give the address of a field of a FlatBuffers table, 0 where it is not there."""
    lines = table - np.int64(_load_int32(table))
    if 4 + 2 * number >= _load_int16(lines):
        return np.int64(0)
    offset = np.int64(_load_int16(lines + 4 + 2 * number))
    return table + offset if offset else np.int64(0)


@njit(cache=True, inline="always")
def _follow(address):
    return address + np.int64(_load_int32(address))


@njit(cache=True)
def buffer_offsets(message, numbers, out, lines, nulls):
    """Write where these buffers of an encapsulated Arrow record batch begin, 0 for empty ones.

    ``message`` is the address of its first byte, from which offsets count. By Message.fbs of the
    Arrow format, field 2 of a Message is its header, field 2 of a RecordBatch its buffers: pairs
    of offset and length. ``nulls[c]`` is set where the line before ``lines[c]``, the validity of
    column c, is not empty.
    """
    body = 8 + np.int64(_load_int32(message + 4))
    header = _follow(_field(_follow(message + 8), 2))
    buffers = _follow(_field(header, 2)) + 4
    for i in range(len(numbers)):
        entry = buffers + 16 * numbers[i]
        out[i] = body + _load_int64(entry) if _load_int64(entry + 8) > 0 else 0
    for c in range(len(lines)):
        nulls[c] |= out[lines[c] - 1] != 0


@njit(cache=True, inline="always")
def _page_of(code, page_code, low, scale):
    """Give the last page that begins at or before a code; a guess first, right for dense keys."""
    last = len(page_code) - 1
    guess = np.int64(min(max((float(code) - low) * scale, 0.0), float(last)))
    if guess < last and page_code[guess] <= code < page_code[guess + 1]:
        return guess
    page, count = np.int64(0), last + 1
    while count > 1:
        half = count >> 1
        page += half * np.int64(page_code[page + half] <= code)
        count -= half
    return page


@njit(cache=True, inline="always")
def _in_proportion(code, page_code, page, count):
    """Guess where a code stands in its page: in proportion between two first codes."""
    first = page_code[page]
    width = float(page_code[page + 1]) - first if page + 1 < len(page_code) else float(count)
    if width <= 0:  # of codes as large as these a float tells none apart
        return 0
    share = min(max((float(code) - first) / width, 0.0), 1.0)
    return min(np.int64(share * count), count - 1)


@njit(cache=True, inline="always")
def _is_dense(page_code, page, count):
    """Whether a page has as many codes as there are up to the next: each is in its place."""
    return page + 1 < len(page_code) and page_code[page + 1] - page_code[page] == count


@njit(cache=True, inline="always")
def _first_at_least(base, count, code, guess):
    """Give the first of ``count`` ascending codes that is not below ``code``, starting nearby."""
    low, high, step = 0, count, 1
    if _load_int64(base + 8 * guess) < code:
        low = guess + 1
        while low + step < count and _load_int64(base + 8 * (low + step)) < code:
            low += step + 1
            step <<= 1
        high = min(count, low + step)
    else:
        high = guess
        while high - step >= 0 and _load_int64(base + 8 * (high - step)) >= code:
            high -= step
            step <<= 1
        low = max(0, high - step)
    while low < high:
        middle = (low + high) >> 1
        if _load_int64(base + 8 * middle) < code:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True)
def locate(codes, pages, page_code, page_rows, start, offset, state, rule, out):
    """Find arriving rows in pages that lie in memory.

    Parameters
    ----------
    codes, pages
        The codes of the rows; a page of −1 tells that a row cannot match.
    page_code, page_rows, start, offset
        Of each page its first code, its rows, its address and where its codes begin; an offset of
        0 tells that it is not known yet, of −1 that the page has several parts.
    state
        ``(row, position, found, missing, deferred)`` to go on from; position −1 starts the row.
    rule
        ``(unique, once)``: whether no two codes are equal, and whether one pair a row is enough.
    out
        ``(rows, blocks, positions, absent, later)``: pairs, rows without match, and rows whose page
        has several parts; pairs and absent rows are together at most as many as there is room.

    Returns
    -------
    tuple
        The state, its row the number of codes when all is done, and the page that is not known, −1
        where that is not why it stopped.
    """
    row, position, found, missing, deferred = state
    unique, once = rule
    rows, blocks, positions, absent, later = out
    room, last = len(rows), len(page_code) - 1
    low = float(page_code[0]) if last >= 0 else 0.0
    scale = last / max(float(page_code[last]) - low, 1.0) if last >= 0 else 0.0
    tile_page, tile_position = np.empty(_TILE, np.int32), np.empty(_TILE, np.int32)
    tile = end = row  # rows from ``tile`` to ``end`` have a guess of their page and position
    while row < len(codes) and found + missing < room:
        if last < 0 or pages[row] < 0 or codes[row] < page_code[0]:
            absent[missing] = row
            missing += 1
            row += 1
            continue
        if row >= end:  # the guesses of many rows first, so that their loads do not wait for each
            tile, end = row, min(row + _TILE, len(codes))
            for i in range(tile, end):
                page = _page_of(codes[i], page_code, low, scale)
                tile_page[i - tile] = page
                tile_position[i - tile] = _in_proportion(codes[i], page_code, page, page_rows[page])
        code, page = codes[row], np.int64(tile_page[row - tile])
        if offset[page] <= 0:
            if offset[page] == 0:
                return (row, position, found, missing, deferred), page
            later[deferred] = row
            deferred += 1
            row += 1
            continue
        base, count = start[page] + offset[page], np.int64(page_rows[page])
        fresh = position < 0
        if fresh:
            position = np.int64(tile_position[row - tile])
            if unique and _is_dense(page_code, page, count):
                rows[found], blocks[found], positions[found] = row, page, code - page_code[page]
                found += 1
                row, position = row + 1, -1
                continue
            if not (unique and _load_int64(base + 8 * position) == code):
                position = _first_at_least(base, count, code, position)
        begin = position
        while position < count and _load_int64(base + 8 * position) == code:
            if found + missing == room:
                return (row, position, found, missing, deferred), -1
            rows[found], blocks[found], positions[found] = row, page, position
            found += 1
            position += 1
            if unique or once:
                break
        if fresh and position == begin:
            absent[missing] = row
            missing += 1
        row, position = row + 1, -1
    return (row, position, found, missing, deferred), -1


@njit(cache=True)
def match_run(first, pages, window, cursor, rule, out):
    """Match the rows that wait for neighbouring pages with these pages; answered rows leave.

    Parameters
    ----------
    first
        The number of the first page.
    pages
        ``(rows, start, offset, page_code)``: of each page its rows, its address and where its codes
        begin; of all pages of the master their first codes.
    window
        ``(heads, chain, pages, codes, state)``: the window's arrays.
    cursor
        ``(block, previous, row, position)`` to go on from: the page, the row before in its chain
        or −1, the row or −2 for the first one, and where in the page it stands or −1.
    rule
        ``(unique, once)``: whether no two codes are equal, and whether one pair a row is enough.
    out
        ``(rows, blocks, positions, absent)``: pairs and rows without a match; together at most as
        many as there is room for.

    Returns
    -------
    tuple
        How many pairs, how many absent rows, how many rows were answered, and the cursor; its block
        is the number of pages when all is done.
    """
    block, previous, row, position = cursor
    page_rows, start, offset, page_code = pages
    unique, once = rule
    heads, chain, row_page, codes, state = window
    rows, blocks, positions, absent = out
    found, missing, answered, room = 0, 0, 0, len(rows)
    while block < len(page_rows):
        page, base, count = first + block, start[block] + offset[block], np.int64(page_rows[block])
        dense = unique and _is_dense(page_code, page, count)
        slot = page & (len(heads) - 1)
        if row == -2:
            row = np.int64(heads[slot])
        while row >= 0:
            if row_page[row] != page or state[row] != WAITING:
                previous, row = row, np.int64(chain[row])
                continue
            code = codes[row]
            if dense:
                position = code - page_code[page]
            elif position < 0:
                guess = _in_proportion(code, page_code, page, count)
                position = _first_at_least(base, count, code, guess)
            while position < count and (dense or _load_int64(base + 8 * position) == code):
                if found + missing == room:
                    return found, missing, answered, (block, previous, row, position)
                rows[found], blocks[found], positions[found] = row, block, position
                found += 1
                position += 1
                if unique or once:
                    break
            if not dense and (position == 0 or _load_int64(base + 8 * (position - 1)) != code):
                if found + missing == room:
                    return found, missing, answered, (block, previous, row, position)
                absent[missing] = row
                missing += 1
            state[row] = GONE
            answered += 1
            if previous < 0:
                heads[slot] = chain[row]
            else:
                chain[previous] = chain[row]
            row, position = np.int64(chain[row]), np.int64(-1)
        block, previous, row = block + 1, np.int64(-1), np.int64(-2)
    return found, missing, answered, (block, previous, row, position)
