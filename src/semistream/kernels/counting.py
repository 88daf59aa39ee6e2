"""Counts and marks by code: Bloom filters, count-min sketches, and which rows are fresh."""

from __future__ import annotations

import numpy as np
from numba import njit

from semistream.kernels.hashing import mix

__all__ = [
    "ABSENT",
    "COUNTS",
    "FOREVER",
    "OLD",
    "bloom_add",
    "bloom_test",
    "mark_fresh",
    "sketch_add",
    "sketch_estimate",
]

# What is to be said of a row of a database that was fetched a while ago.
OLD = np.uint8(0)  # it counts no more
COUNTS = np.uint8(1)
ABSENT = np.uint8(2)  # that there is none counts
FOREVER = 1 << 62
"""Microseconds: the life of what never grows old."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


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
        h = mix(np.uint64(codes[i]) + _GOLDEN)
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
        h = mix(np.uint64(codes[i]) + _GOLDEN)
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
    h = mix(np.uint64(code) + _GOLDEN)
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
        h = mix(np.uint64(codes[i]) + _GOLDEN)
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
