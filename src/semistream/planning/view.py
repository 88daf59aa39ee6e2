"""A small copy of a master: every n-th of its pages, held in memory.

Joins run on it as on the whole, with memory scaled alike; what they count for a row is what the
whole would count (the idea behind the miss-ratio curves of SHARDS, Waldspurger et al., FAST 2015).
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.errors import OptionError
from semistream.master import FileMaster
from semistream.master.files.drafts import ReadFile
from semistream.master.files.filter import KeyFilter
from semistream.master.files.format import aligned
from semistream.master.files.reader import PageReader, reader_kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

__all__ = ["View", "take_view"]

_MOST_VALUES = 1 << 17  # join values of a view: a run over them takes about a second
_MOST_BYTES = 64 << 20

_LEAST_PAGES = 32  # fewer, and a sweep's choice of pages is no longer that of the whole


def _no_keys() -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([], schema=pa.schema([]))


@dataclass(frozen=True, eq=False, kw_only=True)
class View(FileMaster):
    """Every ``stride``-th page of a master, with the keys on them."""

    stride: int = 1
    present: pa.RecordBatch = field(default_factory=_no_keys, repr=False)
    """The key of each join value, in the order of the pages."""
    absent: pa.RecordBatch = field(default_factory=_no_keys, repr=False)
    """Keys of pages between the chosen ones: the view lacks them."""

    whole: FileMaster | None = None
    """The master itself."""

    def covers(self, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which codes the view would have, if the master has them."""
        pages = self.page_of(codes) if self.whole is None else self.whole.page_of(codes)
        return np.asarray((pages < 0) | (pages % self.stride == 0))

    def reader(self, parts: int = 1, run: int | None = None) -> PageReader:
        """Return a reader of the pages in memory, however the master itself is read."""
        return reader_kind("mapped")(self, parts, run or parts)

    def load_filter(self, words: int) -> KeyFilter:
        """Return a filter over the view's keys, with as many bits a key as the whole has."""
        return self._filter.folded(words)

    @cached_property
    def _filter(self) -> KeyFilter:
        keys, reader = KeyFilter.zeros(self.manifest.filter_words), self.reader()
        for part in range(len(self.index.code)):
            keys.add(reader.load(part, 1)[0].column(0).to_numpy())
        return keys


def take_view(master: FileMaster, *, with_absent: bool = False, every: int = 0) -> View:
    """Read every n-th page of a master into memory, n a power of two that bounds keys and bytes.

    ``with_absent`` reads as many pages between them, for keys that the view lacks; ``every`` is n
    where it is not to be chosen.
    """
    s = master.statistics
    if not s.values:
        msg = f"{master.path}: this master has no rows, so there is nothing to plan"
        raise OptionError(msg)
    most = max(_LEAST_PAGES, min(_MOST_VALUES * s.pages / s.values, _MOST_BYTES / s.largest_part))
    stride = every or 1
    while not every and (s.pages / stride > most or (with_absent and stride < min(2, s.pages))):
        stride *= 2  # a filter halves with it
    pages = range(0, s.pages, stride)
    view = _copy(master, pages, stride)
    present = _keys(view, range(view.pages))
    between = range(stride // 2, s.pages, stride) if with_absent and stride > 1 else range(0)
    absent = _keys(master, between) if between else _no_keys()
    statistics = replace(view.statistics, values=present.num_rows)
    return replace(view, statistics=statistics, present=present, absent=absent)


def _copy(master: FileMaster, pages: Sequence[int], stride: int) -> View:
    parts = np.concatenate([np.asarray(master.parts(page)) for page in pages])
    index, s = master.index, master.statistics
    sizes = np.array([aligned(int(length)) for length in index.length[parts]])
    starts = np.cumsum(sizes) - sizes
    file = _in_memory(master, index.offset[parts], starts, sizes)
    first = None
    if index.first_part is not None:
        first = np.searchsorted(parts, index.first_part[np.asarray(pages)])
    columns = {
        n: getattr(index, n)[parts] for n in ("code", "checksum", "length", "rows", "widest")
    }
    code = columns["code"] if first is None else columns["code"][first]
    rows = int(columns["rows"].sum())
    statistics = replace(
        s, rows=rows, parts=len(parts), pages=len(pages), bytes=round(s.bytes * rows / s.rows)
    )
    manifest = replace(
        master.manifest,
        statistics=statistics,
        pages_bytes=int(sizes.sum()),
        filter_words=master.manifest.filter_words // stride,
    )
    chosen = replace(index, **columns, offset=starts, page_code=code, first_part=first)
    same = {f.name: getattr(master, f.name) for f in fields(FileMaster)}
    own = {"statistics": statistics, "manifest": manifest, "index": chosen, "pages_file": file}
    return View(**{**same, **own}, stride=stride, whole=master)


def _in_memory(
    master: FileMaster,
    offsets: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
) -> ReadFile:
    """Copy parts of the pages file into a file that exists in memory only."""
    handle = os.memfd_create("semistream-view")
    try:
        os.ftruncate(handle, int(sizes.sum()))
        with mmap.mmap(handle, int(sizes.sum())) as memory, memoryview(memory) as bytes_:
            for offset, start, size in zip(offsets, starts, sizes, strict=True):
                with bytes_[start : start + size] as place:
                    master.pages_file.read_into(place, int(offset))
        return ReadFile(Path(f"/proc/self/fd/{handle}"))
    finally:
        os.close(handle)


def _keys(master: FileMaster, pages: Sequence[int]) -> pa.RecordBatch:
    """Read the key of every join value on these pages."""
    reader, found = master.reader(), []
    for page in pages:
        batch = reader.load(master.parts(page)[0], 1)[0]  # further parts have the same value
        _, rows = np.unique(batch.column(0).to_numpy(), return_index=True)
        if master.keys.exact:
            codes = batch.column(0).take(pa.array(rows))
            found.append(pa.record_batch({master.key[0]: master.keys.decode(codes)}))
        else:
            found.append(batch.select(list(master.key)).take(pa.array(rows)))
    return pa.Table.from_batches(found).combine_chunks().to_batches()[0]
