"""Finding codes in pages that lie in memory, many rows and pages in one compiled call.

Pages are known by address, as in `kernels.memory`. A code is searched from a guess in proportion;
where a page's codes follow each other in even steps, its place is computed and nothing is read.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from semistream.kernels.chains import WAITING
from semistream.kernels.memory import load_int64, prefetch

__all__ = ["even_step", "look_up", "match_run", "pages_of"]

_TILE = 256  # rows whose pages are guessed before they are looked at
_LARGEST_STEP = 2**31 - 1  # a step is noted in 32 bits


@njit(cache=True, inline="always")
def _page_of(code, page_code, low, scale):
    """Return the last page that begins at or before a code; a guess first, right for dense keys."""
    last = len(page_code) - 1
    guess = np.int64(min(max((float(code) - low) * scale, 0.0), float(last)))
    if page_code[guess] > code and guess > 0:  # rounding may miss by one
        guess -= 1
    elif guess < last and page_code[guess + 1] <= code:
        guess += 1
    if page_code[guess] <= code and (guess == last or code < page_code[guess + 1]):
        return guess
    page, count = np.int64(0), last + 1
    while count > 1:
        half = count >> 1
        page += half * np.int64(page_code[page + half] <= code)
        count -= half
    return page


@njit(cache=True, inline="always")
def _scale(page_code):
    """Return what `_page_of` guesses from: the first code, and pages for each code behind it."""
    low = float(page_code[0])
    return low, (len(page_code) - 1) / max(float(page_code[-1]) - low, 1.0)


@njit(cache=True)
def pages_of(codes, page_code, out):
    """Write the last page that begins at or before each code, −1 where none does."""
    if len(page_code) == 0:
        out[:] = -1
        return
    low, scale = _scale(page_code)
    for i in range(len(codes)):
        page = _page_of(codes[i], page_code, low, scale)
        out[i] = page if codes[i] >= page_code[0] else -1


@njit(cache=True, inline="always")
def _in_proportion(code, page_code, page, count):
    """Guess where a code stands in its page: in proportion between two first codes."""
    first = page_code[page]
    width = float(page_code[page + 1]) - first if page + 1 < len(page_code) else float(count)
    return _between(code, first, width, count)


@njit(cache=True, inline="always")
def _between(code, first, width, count):
    """Guess where a code stands among ``count`` codes that are spread over ``width``."""
    if width <= 0:  # of codes as large as these a float tells none apart
        return 0
    share = min(max((float(code) - first) / width, 0.0), 1.0)
    return min(np.int64(share * count), count - 1)


@njit(cache=True, inline="always")
def _first_at_least(base, count, code, guess):
    """Return the first of ``count`` ascending codes that is not below ``code``, starting nearby."""
    low, high, step = 0, count, 1
    if load_int64(base + 8 * guess) < code:
        low = guess + 1
        while low + step < count and load_int64(base + 8 * (low + step)) < code:
            low += step + 1
            step <<= 1
        high = min(count, low + step)
    else:
        high = guess
        while high - step >= 0 and load_int64(base + 8 * (high - step)) >= code:
            high -= step
            step <<= 1
        low = max(0, high - step)
    while low < high:
        middle = (low + high) >> 1
        if load_int64(base + 8 * middle) < code:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True)
def even_step(codes, count):
    """Return the step in which ``count`` codes at an address follow each other, 0 if it varies."""
    step = load_int64(codes + 8) - load_int64(codes) if count > 1 else np.int64(1)
    if not 0 < step <= _LARGEST_STEP:
        return 0
    even = True
    for i in range(1, count):
        even &= load_int64(codes + 8 * i) - load_int64(codes + 8 * (i - 1)) == step
    return step if even else 0


@njit(cache=True, inline="always")
def _in_steps(code, first, step, count):
    """Return where a code stands among codes in even steps, −1 where it does not."""
    above = np.uint64(code) - np.uint64(first)  # may be more than a signed number holds
    place = above if step == 1 else above // np.uint64(step)
    if place >= np.uint64(count) or place * np.uint64(step) != above:
        return np.int64(-1)
    return np.int64(place)


@njit(cache=True)
def _guess(codes, index, where, guesses):
    """Write the page of each code, where it may stand there, and the step if that is certain.

    Returns
    -------
    bool
        Whether it is for all of them.
    """
    page_code, page_rows = index
    start, offset, steps = where
    pages, positions, certain = guesses
    low, scale = _scale(page_code)
    all_certain = True
    for i in range(len(codes)):
        page = _page_of(codes[i], page_code, low, scale)
        count = np.int64(page_rows[page])
        known = offset[page] > 0  # before the step: another process may be noting this page
        step = steps[page] if known else np.int32(0)
        pages[i], certain[i] = page, step
        if step:
            positions[i] = _in_steps(codes[i], page_code[page], step, count)
        else:
            all_certain = False
            positions[i] = _in_proportion(codes[i], page_code, page, count)
            prefetch(start[page] + offset[page] + 8 * np.int64(positions[i]))
    return all_certain


@njit(cache=True)
def _write_certain(row, valid, guesses, found, missing, out):
    """Write the rows from ``row`` on, one for each of ``valid``, and count them."""
    pages, positions, _ = guesses
    rows, blocks, places, absent, _ = out
    for i in range(len(valid)):
        hit = np.int64(positions[i] >= 0 and valid[i] >= 0)
        if hit:
            rows[found], blocks[found], places[found] = row + i, pages[i], positions[i]
        else:
            absent[missing] = row + i
        found, missing = found + hit, missing + 1 - hit
    return found, missing


@njit(cache=True)
def look_up(codes, pages, index, where, state, rule, out):
    """Find arriving rows in pages that lie in memory.

    Parameters
    ----------
    codes, pages
        The codes of the rows; a page of −1 tells that a row cannot match.
    index
        ``(page_code, page_rows)``: of each page its first code and its rows.
    where
        ``(start, offset, steps)``: its address, where its codes begin, and in which even steps they
        follow each other or 0; an offset of 0 tells that the page is not known yet, of −1 that it
        has several parts.
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
    page_code, page_rows = index
    start, offset, _ = where
    unique, once = rule
    rows, blocks, positions, absent, later = out
    room, last = len(rows), len(page_code) - 1
    guesses = np.empty(_TILE, np.int32), np.empty(_TILE, np.int32), np.empty(_TILE, np.int32)
    tile_page, tile_position, tile_step = guesses
    tile = end = row  # rows from ``tile`` to ``end`` have a guess of their page and position
    while row < len(codes) and found + missing < room:
        if last < 0 or pages[row] < 0 or codes[row] < page_code[0]:
            absent[missing] = row
            missing += 1
            row += 1
            continue
        if row >= end:  # the guesses of many rows first, so that their loads do not wait for each
            tile, end = row, min(row + _TILE, len(codes))
            certain = _guess(codes[tile:end], index, where, guesses)
            if certain and found + missing + end - tile <= room:
                found, missing = _write_certain(row, pages[tile:end], guesses, found, missing, out)
                row = end
                continue
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
            if tile_step[row - tile]:  # the guess is none, and tells whether the code is there
                one = slice(row - tile, row - tile + 1)
                mine = tile_page[one], tile_position[one], tile_step[one]
                found, missing = _write_certain(
                    row, pages[row : row + 1], mine, found, missing, out
                )
                row, position = row + 1, np.int64(-1)
                continue
            if not (unique and load_int64(base + 8 * position) == code):
                position = _first_at_least(base, count, code, position)
        begin = position
        while position < count and load_int64(base + 8 * position) == code:
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
def match_run(pages, window, cursor, rule, out, counts):
    """Match the rows that wait for some pages with these; answered rows leave their chain.

    Parameters
    ----------
    pages
        ``(numbers, rows, start, offset, low, high)``: of each page its number, its rows, its
        address and where its codes begin, its first code, and the first code of the page behind
        it, or its own where there is none.
    window
        ``(heads, chain, pages, codes, state)``: the window's arrays.
    cursor
        ``(block, previous, row, position)`` to go on from: the page, the row before in its chain
        or −1, the row or −2 for the first one, and where in the page it stands or −1.
    rule
        ``(unique, once, last, single, done)``: no two codes are equal; one pair a row is enough;
        nothing of these pages comes later; only the row of the cursor is answered; the state of an
        answered row.
    out
        ``(rows, blocks, positions, absent)``: pairs and rows without a match; together at most as
        many as there is room for.
    counts
        Where the pairs of each row of the page are counted, of a single page; or no array at all.

    Returns
    -------
    tuple
        How many pairs, how many absent rows, how many rows were answered, and the cursor; its block
        is the number of pages when all is done.
    """
    block, previous, row, position = cursor
    numbers, page_rows, start, offset, low, high = pages
    unique, once, last, single, done = rule
    heads, chain, row_page, codes, state = window
    rows, blocks, positions, absent = out
    found, missing, answered, room = 0, 0, 0, len(rows)
    while block < len(page_rows):
        page, count = numbers[block], np.int64(page_rows[block])
        base, width = start[block] + offset[block], high[block] - low[block]
        dense = unique and width == count > 0  # as many codes as there are: each is in its place
        slot = page & (len(heads) - 1)
        if row == -2:
            row = np.int64(heads[slot])
        while row >= 0:
            if row_page[row] != page or state[row] != WAITING:
                previous, row = row, np.int64(chain[row])
                continue
            code = codes[row]
            if dense:
                position = code - low[block]
            elif count == 0:  # a database's answer may have no rows
                position = np.int64(0)
            elif position < 0:
                guess = _between(code, low[block], float(high[block]) - low[block], count)
                position = _first_at_least(base, count, code, guess)
            while position < count and (dense or load_int64(base + 8 * position) == code):
                if found + missing == room:
                    return found, missing, answered, (block, previous, row, position)
                rows[found], blocks[found], positions[found] = row, block, position
                if len(counts):
                    counts[position] += 1
                found += 1
                position += 1
                if unique or once:
                    break
            if last:
                if not dense and (position == 0 or load_int64(base + 8 * (position - 1)) != code):
                    if found + missing == room:
                        return found, missing, answered, (block, previous, row, position)
                    absent[missing] = row
                    missing += 1
                state[row] = done
                answered += 1
            if single:  # it stays in its chain, which may begin anywhere: walkers see its state
                break
            if not last:
                previous = row
            elif previous < 0:
                heads[slot] = chain[row]
            else:
                chain[previous] = chain[row]
            row, position = np.int64(chain[row]), np.int64(-1)
        block, previous, row, position = block + 1, np.int64(-1), np.int64(-2), np.int64(-1)
    return found, missing, answered, (block, previous, row, position)
