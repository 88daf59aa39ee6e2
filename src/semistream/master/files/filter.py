"""A Bloom filter over the codes of a master, in whatever size the plan can pay.

A filter of 2ⁿ bits folds into one of half its size by a bitwise *or* of its halves. So the build
stores one of 8 to 16 bits a key, and an operator holds it at the size that its budget allows.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import xxhash

from semistream.errors import CorruptPageError
from semistream.kernels.counting import bloom_add, bloom_test

if TYPE_CHECKING:
    import numpy.typing as npt

    from semistream.master.files.drafts import ReadFile

__all__ = ["KeyFilter", "filter_words"]

_LEAST_READ = 4096  # words: with fewer, calls take longer than bytes
_HASHES = 4  # as the kernels compute
_LEAST_BITS = 4  # a key; below, more than one absent key in six passes


def filter_words(keys: int) -> int:
    """Return the 64-bit words of a filter with at least 8 bits a key, a power of two.

    Examples
    --------
    >>> filter_words(1_000_000) * 8
    1048576
    """
    return 1 << max(0, math.ceil(math.log2(max(1, keys) / 8)))


class KeyFilter:
    """A Bloom filter over codes: only absence is certain.

    Examples
    --------
    >>> keys = KeyFilter.zeros(filter_words(1000))
    >>> keys.add(np.arange(1000))
    >>> bool(keys.may_contain(np.arange(1000)).all())
    True
    >>> int(keys.may_contain(np.arange(1000, 2000)).sum()) < 100
    True
    """

    def __init__(self, words: npt.NDArray[np.uint64]) -> None:
        self.words = words

    @classmethod
    def zeros(cls, words: int) -> KeyFilter:
        """Return a filter over no keys."""
        return cls(np.zeros(words, dtype=np.uint64))

    @classmethod
    def load(cls, file: ReadFile, stored: tuple[int, int], words: int) -> KeyFilter:
        """Read a filter of so many words and this checksum, folding it to ``words`` as it comes."""
        total, expected = stored
        if total.bit_count() != 1 or file.size != total * 8:  # it folds by halves
            msg = f"{file.path}: {file.size:,} bytes, not a filter of {total:,} words"
            raise CorruptPageError(f"{msg}; build the master again")
        memory = bytearray(8 * min(total, max(words, _LEAST_READ)))
        chunk = cls(np.frombuffer(memory, dtype=np.uint64))
        out, content = np.zeros(words, dtype=np.uint64), xxhash.xxh3_64()
        for start in range(0, total * 8, len(memory)):
            file.read_into(memoryview(memory), start)
            content.update(memory)
            out |= chunk.folded(words).words
        if content.intdigest() != expected:
            msg = (
                f"{file.path}: the filter is damaged, its checksum differs; build the master again"
            )
            raise CorruptPageError(msg)
        return cls(out)

    @property
    def nbytes(self) -> int:
        """Bytes that the filter takes."""
        return self.words.nbytes

    @property
    def fill(self) -> float:
        """Fraction of its bits that are set."""
        return float(np.bitwise_count(self.words).sum()) / max(1, 64 * len(self.words))

    def add(self, codes: npt.NDArray[np.int64]) -> None:
        """Add these codes."""
        bloom_add(self.words, codes)

    def may_contain(self, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return for each code whether it may be present; False is certain."""
        out = np.empty(len(codes), dtype=np.bool_)
        bloom_test(self.words, codes, out)
        return out

    @staticmethod
    def affordable(words: int, keys: int, room: int) -> int:
        """Return the words of the largest folding that fits ``room`` bytes, 0 if none is useful."""
        while words and words * 8 > room:
            words //= 2
        return words if words * 64 >= _LEAST_BITS * keys else 0

    @staticmethod
    def false_positives(words: int, keys: int) -> float:
        """Return the fraction of absent codes that a filter of so many words lets pass.

        Examples
        --------
        >>> round(KeyFilter.false_positives(filter_words(1000), 1000), 3)
        0.022
        """
        return float((1 - math.exp(-_HASHES * keys / (64 * words))) ** _HASHES)

    def folded(self, words: int) -> KeyFilter:
        """Return this filter, folded to a smaller size."""
        if words == len(self.words):
            return self
        parts = self.words.reshape(-1, words)
        return KeyFilter(np.bitwise_or.reduce(parts, axis=0))
