"""Statistics and filter of a snapshot that was made by changes: as exact as after a build."""

from __future__ import annotations

import mmap
from typing import IO, TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.arrow.page_shape import PageShape
from semistream.errors import CorruptPageError
from semistream.master.build.pages import Counts, ValueCount
from semistream.master.files.filter import KeyFilter, filter_words
from semistream.master.files.format import aligned

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from semistream.master.files.master import FileMaster
    from semistream.master.sync.rewrite import Rewrite

__all__ = ["count_rows", "parent_filter"]

_FULLEST = 0.45
"""Fraction of set bits above which a filter is made anew: 4 % of absent keys pass, not 2 %."""


def parent_filter(parent: FileMaster, memory: int) -> KeyFilter:
    """Load the parent's filter, as large as a quarter of the memory can hold."""
    words = KeyFilter.affordable(parent.filter_words, parent.statistics.values, memory // 4)
    return parent.load_filter(words) if words else KeyFilter.zeros(0)


def count_rows(
    rewrite: Rewrite, pages: IO[bytes], null_keys: int, memory: int
) -> tuple[Counts, KeyFilter]:
    """Return the counts of the new pages, and their filter; read the codes only if need be."""
    parent, left, new = rewrite.parent.statistics, rewrite.left, rewrite.writer.counts(null_keys)
    values, most = parent.values - left.values + new.values, parent.most_duplicates
    counts = Counts(
        parent.bytes - left.bytes + new.bytes, values, max(new.most_duplicates, most), null_keys
    )
    # The most frequent value was met, or surely lies in a page that was copied.
    copied = rewrite.tally.pages_copied > 0
    untouched = left.most_duplicates < most or (copied and most == 1)
    words = KeyFilter.affordable(filter_words(values), values, memory // 4)
    words = words if rewrite.parent.filter_words else 0
    if (new.most_duplicates >= most or untouched) and not _is_outgrown(rewrite.filter, words):
        return counts, rewrite.filter
    recount, keys = ValueCount(), KeyFilter.zeros(words)
    for codes in _codes(pages, rewrite):
        fresh = recount.add(codes)
        if keys.nbytes:
            keys.add(fresh)
    return Counts(counts.bytes, recount.values, recount.most, null_keys), keys


def _is_outgrown(keys: KeyFilter, words: int) -> bool:
    """Return whether a filter has too few bits, or too many of them set by keys that are gone."""
    held = len(keys.words)
    if not held or not words:
        return held != words
    return words > held or keys.folded(min(held, words)).fill > _FULLEST


def _codes(pages: IO[bytes], rewrite: Rewrite) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the codes of all new pages, part by part; what lies between them is not read."""
    pages.flush()
    lines, schema = rewrite.writer.index.lines, rewrite.parent.page_schema
    if not len(lines):
        return
    data = pa.py_buffer(mmap.mmap(pages.fileno(), rewrite.writer.index.end, prot=mmap.PROT_READ))
    shape = PageShape(schema)
    for line in lines:
        content = data.slice(int(line["offset"]), aligned(int(line["length"])))
        if not shape.fits(content, int(line["length"]), int(line["rows"])):  # it was copied unseen
            msg = f"{rewrite.parent.path}: a page does not hold what its header says"
            raise CorruptPageError(f"{msg}; build the master again")
        yield np.asarray(pa.ipc.read_record_batch(content, schema).column(0).to_numpy())
