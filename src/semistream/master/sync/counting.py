"""What a snapshot that was made by changes knows of its rows: counts as exact as after a build."""

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

__all__ = ["counted", "parent_filter"]

_FULLEST = 0.45
"""The share of a filter's bits above which it is made anew: 4 % of absent keys pass, not 2 %."""


def parent_filter(parent: FileMaster, memory: int) -> KeyFilter:
    """Give the parent's filter, as large as a quarter of the memory can hold."""
    words = parent.manifest.filter_words
    affordable = KeyFilter.affordable(words, parent.statistics.values, memory // 4)
    return parent.load_filter(affordable) if affordable else KeyFilter.zeros(0)


def counted(
    rewrite: Rewrite, pages: IO[bytes], null_keys: int, memory: int
) -> tuple[Counts, KeyFilter]:
    """Give what is known of the new pages, and their filter; read the codes only if it must be."""
    parent, new = rewrite.parent.statistics, rewrite.writer.counts(null_keys)
    counts = Counts(
        parent.bytes - rewrite.left.bytes + new.bytes,
        parent.values - rewrite.left.values + new.values,
        max(new.most_duplicates, parent.most_duplicates),
        null_keys,
    )
    if _most_is_known(rewrite, new) and not _outgrown(rewrite, counts.values, memory):
        return counts, rewrite.filter
    return _recounted(rewrite, pages, counts, memory)


def _most_is_known(rewrite: Rewrite, new: Counts) -> bool:
    """Tell whether the most frequent value was met, or surely lies in a page that was copied."""
    most = rewrite.parent.statistics.most_duplicates
    copied = rewrite.tally.pages_copied > 0
    untouched = rewrite.left.most_duplicates < most or (copied and most == 1)
    return new.most_duplicates >= most or untouched


def _outgrown(rewrite: Rewrite, values: int, memory: int) -> bool:
    """Tell whether the filter has too few bits, or too many of them set by keys that are gone."""
    held = len(rewrite.filter.words)
    if not rewrite.parent.manifest.filter_words:
        return False
    wanted = _words(values, memory)
    if not held or not wanted:
        return held != wanted
    return wanted > held or rewrite.filter.folded(min(held, wanted)).fill > _FULLEST


def _words(values: int, memory: int) -> int:
    return KeyFilter.affordable(filter_words(values), values, memory // 4)


def _recounted(
    rewrite: Rewrite, pages: IO[bytes], counts: Counts, memory: int
) -> tuple[Counts, KeyFilter]:
    values, wanted = ValueCount(), bool(rewrite.parent.manifest.filter_words)
    keys = KeyFilter.zeros(_words(counts.values, memory) if wanted else 0)
    for codes in _codes(pages, rewrite):
        new = values.add(codes)
        if keys.nbytes:
            keys.add(new)
    return Counts(counts.bytes, values.values, values.most, counts.null_keys), keys


def _codes(pages: IO[bytes], rewrite: Rewrite) -> Iterator[npt.NDArray[np.int64]]:
    """Give the codes of all new pages, part by part; what lies between them is not read."""
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
