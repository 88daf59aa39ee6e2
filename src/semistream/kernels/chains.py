"""Rows in chains: the window's by page, a cache's by code.

Nothing here allocates or knows an algorithm. A kernel that produces rows fills the arrays it is
given and returns where it stopped, so that its caller decides how much output there may be at once.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from semistream.kernels.hashing import mix
from semistream.kernels.memory import load_int32, load_int64, store_int32

__all__ = [
    "ANSWERED",
    "GONE",
    "WAITING",
    "chain_pages",
    "chain_values",
    "compact",
    "count_waiting",
    "find_in_shards",
    "first_waiting",
    "probe_shards",
    "probe_values",
    "shards_of",
]

# The states of a row in the window.
WAITING = np.uint8(0)  # not answered yet
ANSWERED = np.uint8(1)  # answered, and held until its chunk leaves (MESHJOIN)
GONE = np.uint8(2)  # answered, its room is free
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: spreads neighbours


@njit(cache=True)
def chain_pages(pages, state, heads, chain, start):
    """Put the waiting rows from ``start`` on before the chains of their pages.

    ``heads`` has a power of two of slots; a page's chain starts in ``heads[page & mask]`` and may
    hold rows of other pages, so walkers compare.
    """
    mask = len(heads) - 1
    for row in range(len(pages) - 1, start - 1, -1):
        if state[row] == WAITING:
            slot = pages[row] & mask
            chain[row] = heads[slot]
            heads[slot] = row


@njit(cache=True)
def compact(values, state):
    """Move the rows that are not gone together, in place and in order."""
    end = 0
    for row in range(len(state)):
        if state[row] != GONE:
            values[end] = values[row]
            end += 1


@njit(cache=True)
def first_waiting(state, start):
    """Return the first waiting row from ``start`` on, or the number of rows."""
    row = start
    while row < len(state) and state[row] != WAITING:
        row += 1
    return row


@njit(cache=True)
def count_waiting(pages, state, counts):
    """Count, for each page, the rows that wait for it."""
    counts[:] = 0
    for row in range(len(state)):
        counts[pages[row]] += state[row] == WAITING


@njit(cache=True, inline="always")
def _slot(code, salt, mask):
    """Return a code's slot; the salt is odd, so that different codes stay different."""
    return np.int64(mix(np.uint64(code) * salt)) & mask


@njit(cache=True)
def chain_values(codes, heads, chain, salt):
    """Index a batch whose equal codes are neighbours: the first row of each run is chained.

    The salt, an odd number, is no one's guess: integers are their own codes, and whoever knew it
    could choose some that all lie in one chain.
    """
    heads[:] = -1
    mask = len(heads) - 1
    for row in range(len(codes)):
        if row == 0 or codes[row] != codes[row - 1]:
            slot = _slot(codes[row], salt, mask)
            chain[row] = heads[slot]
            heads[slot] = row


@njit(cache=True)
def probe_values(probes, codes, heads, chain, salt, hits, cursor, once, rows, positions, hit):
    """Look the codes of arriving rows up in an index made by `chain_values`.

    Parameters
    ----------
    probes
        The codes of the arriving rows.
    codes, heads, chain, salt, hits
        The indexed batch; ``hits`` counts, at the first row of each run, how often it was asked.
    cursor
        ``(row, position)`` to go on from; position −1 starts the row.
    once
        Whether one pair a row is enough.
    rows, positions, hit
        Where pairs (arriving row, indexed row) are written; ``hit`` marks rows that were found.

    Returns
    -------
    tuple
        How many pairs, and the cursor; its row is the number of probes when all is done.
    """
    mask = len(heads) - 1
    row, position = cursor
    found = 0
    while row < len(probes):
        code = probes[row]
        if position < 0:
            position = heads[_slot(code, salt, mask)]
            while position >= 0 and codes[position] != code:
                position = chain[position]
            if position >= 0:
                hits[position] += 1
                hit[row] = True
        while 0 <= position < len(codes) and codes[position] == code:
            if found == len(rows):
                return found, row, position
            rows[found], positions[found] = row, position
            found += 1
            position += 1
            if once:
                break
        row, position = row + 1, -1
    return found, row, position


@njit(cache=True, inline="always")
def _shard(code, shards):
    """Return the shard of a code; the slot within it depends on other bits of another product."""
    return np.int64((np.uint64(code) * _SPREAD) >> np.uint64(40)) & (shards - 1)


@njit(cache=True)
def shards_of(codes, shards, out):
    """Write the shard of each code, of a power of two of them."""
    for i in range(len(codes)):
        out[i] = _shard(codes[i], shards)


@njit(cache=True, inline="always")
def _find(code, shard):
    """Return the first row of a code in a shard, −1 where none is; see `probe_shards`."""
    if shard[2] == 0:
        return np.int64(-1)
    slot = _slot(code, np.uint64(shard[5]), shard[3] - 1)
    position = np.int64(load_int32(shard[2] + 4 * slot))
    while position >= 0 and load_int64(shard[1] + 8 * position) != code:
        position = np.int64(load_int32(shard[4] + 4 * position))
    return position


@njit(cache=True)
def probe_shards(probes, index, cursor, once, rows, blocks, positions, hit):
    """Look codes up as `probe_values` does, in batches that hold a shard of all codes each.

    ``index`` has for each shard its rows, the addresses of its codes and heads, how many heads
    there are, the address of its chain, its salt, and the address of its hits; heads are 0 where
    the shard is empty. ``blocks`` gets the shard of each pair.
    """
    row, position = cursor
    found, shards = 0, len(index)
    while row < len(probes):
        code = probes[row]
        number = _shard(code, shards)
        shard = index[number]
        if position < 0:
            position = _find(code, shard)
            if position >= 0:
                at = shard[6] + 4 * position
                store_int32(at, np.int32(load_int32(at) + 1))
                hit[row] = True
        while 0 <= position < shard[0] and load_int64(shard[1] + 8 * position) == code:
            if found == len(rows):
                return found, row, position
            rows[found], blocks[found], positions[found] = row, number, position
            found += 1
            position += 1
            if once:
                break
        row, position = row + 1, np.int64(-1)
    return found, row, position


@njit(cache=True)
def find_in_shards(probes, index, base, out):
    """Write the first row of each code, counted over all shards by their bases; −1 if none is."""
    for i in range(len(probes)):
        number = _shard(probes[i], len(index))
        position = _find(probes[i], index[number])
        out[i] = base[number] + position if position >= 0 else -1
