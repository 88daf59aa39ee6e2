"""Hashes of keys: SipHash of their bytes, and a finaliser for what is a number already."""

from __future__ import annotations

import numpy as np
from numba import njit

from semistream.kernels.memory import load_byte, load_int64

__all__ = ["hash_bytes", "hash_words", "mix"]

_SIP = (  # "somepseudorandomlygeneratedbytes"
    np.uint64(0x736F6D6570736575),
    np.uint64(0x646F72616E646F6D),
    np.uint64(0x6C7967656E657261),
    np.uint64(0x7465646279746573),
)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


@njit(cache=True, inline="always")
def mix(x):
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
