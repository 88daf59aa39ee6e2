"""The compiled inner loops: hashing, chaining, matching, probing.

Everything here works on plain NumPy arrays, allocates nothing and knows no algorithm. Each kernel
that produces rows fills the arrays it is given and returns where it stopped, so that its caller
decides how much output there may be at once.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from semistream.kernels.memory import load_byte, load_int64

__all__ = [
    "ABSENT",
    "ANSWERED",
    "COUNTS",
    "FOREVER",
    "GONE",
    "OLD",
    "WAITING",
    "bloom_add",
    "bloom_test",
    "chain_pages",
    "chain_values",
    "compact",
    "count_waiting",
    "find_values",
    "first_waiting",
    "hash_bytes",
    "hash_words",
    "mark_fresh",
    "probe_values",
    "sketch_add",
    "sketch_estimate",
]

# The states of a row in the window.
WAITING = np.uint8(0)  # not answered yet
ANSWERED = np.uint8(1)  # answered, and held until its chunk leaves (MESHJOIN)
GONE = np.uint8(2)  # answered, its room is free

# What is to be said of a row of a database that was fetched a while ago.
OLD = np.uint8(0)  # it counts no more
COUNTS = np.uint8(1)
ABSENT = np.uint8(2)  # that there is none counts
FOREVER = 1 << 62
"""Microseconds: the life of what never grows old."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SIP = (  # "somepseudorandomlygeneratedbytes"
    np.uint64(0x736F6D6570736575),
    np.uint64(0x646F72616E646F6D),
    np.uint64(0x6C7967656E657261),
    np.uint64(0x7465646279746573),
)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


@njit(cache=True, inline="always")
def _mix(x):
    """Finalise a 64-bit hash (SplitMix64, Steele et al. 2014)."""
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    return x ^ (x >> np.uint64(31))


@njit(cache=True, inline="always")
def _rotated(x, bits):
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


@njit(cache=True, inline="always")
def _sip_round(a, b, c, d):
    a, c = a + b, c + d
    b, d = _rotated(b, 13) ^ a, _rotated(d, 16) ^ c
    a = _rotated(a, 32)
    a, c = a + d, c + b
    b, d = _rotated(b, 17) ^ c, _rotated(d, 21) ^ a
    return a, b, _rotated(c, 32), d


@njit(cache=True, inline="always")
def _sip_begin(first, second):
    """Begin SipHash-1-3 (Aumasson and Bernstein 2012) with a seed of two words."""
    return first ^ _SIP[0], second ^ _SIP[1], first ^ _SIP[2], second ^ _SIP[3]


@njit(cache=True, inline="always")
def _sip_add(a, b, c, d, word):
    a, b, c, d = _sip_round(a, b, c, d ^ word)
    return a ^ word, b, c, d


@njit(cache=True, inline="always")
def _sip_end(a, b, c, d):
    c ^= np.uint64(0xFF)
    for _ in range(3):
        a, b, c, d = _sip_round(a, b, c, d)
    return a ^ b ^ c ^ d


@njit(cache=True)
def hash_words(words, seed, out):
    """Fold one 64-bit word a row into the hashes ``out``; without the seed no one can foretell it.

    What is there before becomes a part of the seed.
    """
    for i in range(len(out)):
        a, b, c, d = _sip_begin(seed[0] ^ out[i], seed[1])
        a, b, c, d = _sip_add(a, b, c, d, np.uint64(words[i]))
        a, b, c, d = _sip_add(a, b, c, d, np.uint64(8) << np.uint64(56))
        out[i] = _sip_end(a, b, c, d)


@njit(cache=True)
def hash_bytes(offsets, data, seed, out):
    """Fold the bytes ``data[offsets[i]:offsets[i + 1]]`` of row i into ``out[i]`` likewise."""
    base = np.int64(data.ctypes.data)
    for i in range(len(out)):
        at, end = base + offsets[i], base + offsets[i + 1]
        last = np.uint64(end - at) << np.uint64(56)
        a, b, c, d = _sip_begin(seed[0] ^ out[i], seed[1])
        while end - at >= 8:
            a, b, c, d = _sip_add(a, b, c, d, np.uint64(load_int64(at)))
            at += 8
        for j in range(end - at):
            last |= np.uint64(load_byte(at + j)) << np.uint64(8 * j)
        a, b, c, d = _sip_add(a, b, c, d, last)
        out[i] = _sip_end(a, b, c, d)


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
    return np.int64(_mix(np.uint64(code) * salt)) & mask


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


@njit(cache=True)
def mark_fresh(born, codes, changed, last, now, lives, marks):
    """Return which rows of a database still count; in one pass, for hot sets are large.

    Parameters
    ----------
    born
        When each row was asked for; negative where there is none.
    codes
        Their codes.
    changed, last
        When the codes with these low bits changed last, and when any may have.
    now, lives
        The time; how long a row counts, and that there is none.
    marks
        Where `COUNTS`, `ABSENT` or `OLD` is written for each.

    Returns
    -------
    tuple
        When the first that counts ends, how many rows count, and how many absent keys. What has
        but a sixteenth of its life left counts no more: so it takes a while until the next ends.
    """
    mask = len(changed) - 1
    end, rows, absent = FOREVER, 0, 0
    for i in range(len(born)):
        asked = abs(born[i])
        life = lives[1] if born[i] < 0 else lives[0]
        marks[i] = OLD
        if asked + life - life // 16 <= now or asked <= max(last, changed[codes[i] & mask]):
            continue
        end = min(end, asked + life)
        if born[i] < 0:
            marks[i] = ABSENT
            absent += 1
        else:
            marks[i] = COUNTS
            rows += 1
    return end, rows, absent


@njit(cache=True)
def bloom_add(words, codes):
    """Set the four bits of each code in a filter of a power of two of 64-bit words."""
    mask = np.uint64(len(words) * 64 - 1)
    for i in range(len(codes)):
        h = _mix(np.uint64(codes[i]) + _GOLDEN)
        step = (h >> np.uint64(32)) | np.uint64(1)
        for _ in range(4):
            bit = h & mask
            words[bit >> np.uint64(6)] |= np.uint64(1) << (bit & np.uint64(63))
            h += step


@njit(cache=True)
def bloom_test(words, codes, out):
    """Write for each code whether all of its four bits are set."""
    mask = np.uint64(len(words) * 64 - 1)
    for i in range(len(codes)):
        h = _mix(np.uint64(codes[i]) + _GOLDEN)
        step = (h >> np.uint64(32)) | np.uint64(1)
        present = True
        for _ in range(4):
            bit = h & mask
            if not (words[bit >> np.uint64(6)] >> (bit & np.uint64(63))) & np.uint64(1):
                present = False
                break
            h += step
        out[i] = present


@njit(cache=True, inline="always")
def _least(counters, code):
    """Return the least of a code's four counters."""
    mask = np.uint64(len(counters) - 1)
    h = _mix(np.uint64(code) + _GOLDEN)
    step = (h >> np.uint64(32)) | np.uint64(1)
    least = np.uint8(255)
    for _ in range(4):
        least = min(least, counters[h & mask])
        h += step
    return least


@njit(cache=True)
def sketch_add(counters, codes):
    """Count codes: of each code's four counters those that are least grow, up to 255."""
    mask = np.uint64(len(counters) - 1)
    for i in range(len(codes)):
        least = _least(counters, codes[i])
        if least == 255:
            continue
        h = _mix(np.uint64(codes[i]) + _GOLDEN)
        step = (h >> np.uint64(32)) | np.uint64(1)
        for _ in range(4):
            if counters[h & mask] == least:
                counters[h & mask] = least + np.uint8(1)
            h += step


@njit(cache=True)
def sketch_estimate(counters, codes, out):
    """Return the least of each code's four counters."""
    for i in range(len(codes)):
        out[i] = _least(counters, codes[i])
