"""Rows in chains: the window's by page, a cache's by code.

Nothing here allocates or knows an algorithm. A kernel that produces rows fills the arrays it is
given and returns where it stopped, so that its caller decides how much output there may be at once.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from semistream.kernels.hashing import mix

__all__ = [
    "ANSWERED",
    "GONE",
    "WAITING",
    "chain_pages",
    "chain_values",
    "compact",
    "count_waiting",
    "find_values",
    "first_waiting",
    "probe_values",
]

# The states of a row in the window.
WAITING = np.uint8(0)  # not answered yet
ANSWERED = np.uint8(1)  # answered, and held until its chunk leaves (MESHJOIN)
GONE = np.uint8(2)  # answered, its room is free


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


@njit(cache=True)
def find_values(probes, codes, heads, chain, salt, out):
    """Return the first row of each code in an index made by `chain_values`, −1 where none is."""
    mask = len(heads) - 1
    for i in range(len(probes)):
        position = heads[_slot(probes[i], salt, mask)]
        while position >= 0 and codes[position] != probes[i]:
            position = chain[position]
        out[i] = position
