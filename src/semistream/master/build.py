"""Building a master table: encode keys, sort out of core, cut pages, publish."""

from __future__ import annotations

import array
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import xxhash

from semistream.errors import MasterError, OptionError, SchemaError
from semistream.keys import Keys
from semistream.master.files import Draft, exclusive
from semistream.master.filter import KeyFilter, filter_words
from semistream.master.format import (
    ALIGNMENT,
    CODE,
    INDEX_SCHEMA,
    MANIFEST,
    Manifest,
    Statistics,
    aligned,
    checksum,
    page_schema,
)
from semistream.master.sort import ExternalSort
from semistream.master.store import Master, open_master
from semistream.plain import decode, row_bytes
from semistream.units import parse_bytes

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence
    from typing import IO

    import numpy.typing as npt

__all__ = ["Progress", "build_master"]

_INPUT_ROWS = 65_536
Source: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader | str | Path


@dataclass(frozen=True)
class Progress:
    """How far a build has come."""

    phase: str
    """``"read"``, then ``"write"``."""
    rows: int
    total: int | None
    """Rows in all, where they are known: always in the phase ``"write"``."""


def build_master(
    source: Source,
    path: str | os.PathLike[str],
    key: str | Sequence[str],
    *,
    page_bytes: int | str = "128KB",
    filter: bool = True,  # noqa: A002 - the word users look for
    memory: int | str = "1GB",
    progress: Callable[[Progress], None] | None = None,
) -> Master:
    """Build a master table from rows in any order, in bounded memory, and open it.

    A build that fails or is killed leaves the master that was there as it was. Rows with a null in
    their key match nothing and are left out (counted in the statistics).

    Parameters
    ----------
    source
        A pyarrow Table, RecordBatch or RecordBatchReader, or the path of a Parquet file or folder.
    path
        The folder to write, replaced atomically if a master is there.
    key
        The join key: a column's name, or several.
    page_bytes
        The size of a page; larger ones suit sequential reads, smaller ones random reads.
    filter
        Whether to store a Bloom filter, which answers absent keys without a page.
    memory
        What sorting may use.
    progress
        Called now and then with a `Progress`.

    Examples
    --------
    >>> import tempfile, semistream as ss
    >>> products = pa.table({"product_id": [2, 1], "price": [1.5, 9.0]})
    >>> master = ss.build_master(products, tempfile.mkdtemp(), key="product_id")
    >>> master.rows, master.pages, master.key
    (2, 1, ('product_id',))
    """
    reader = _reader(source)
    keys = Keys.of(reader.schema, [key] if isinstance(key, str) else list(key))
    _check_schema(reader.schema, keys)
    size, room = parse_bytes(page_bytes, "page_bytes"), parse_bytes(memory)
    if size % ALIGNMENT:
        near = aligned(size)
        msg = f"page_bytes={page_bytes!r} is not a multiple of {ALIGNMENT} bytes; take {near}"
        raise OptionError(msg)
    folder = Path(path)
    _check_folder(folder)
    with exclusive(folder):
        _Build(reader, keys, folder, size, room, progress or _silent).run(filter)
    return open_master(folder)


def _silent(_: Progress) -> None:
    pass


def _reader(source: Source) -> pa.RecordBatchReader:
    if isinstance(source, pa.RecordBatchReader):
        return source
    if isinstance(source, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(source.schema, [source])
    if isinstance(source, pa.Table):
        return source.to_reader(max_chunksize=_INPUT_ROWS)
    if isinstance(source, (str, Path)):
        return _parquet_reader(Path(source))
    msg = (
        f"source is a {type(source).__name__}; give a pyarrow Table, RecordBatch or "
        "RecordBatchReader, or the path of a Parquet file or folder"
    )
    raise OptionError(msg)


def _parquet_reader(path: Path) -> pa.RecordBatchReader:
    if not path.exists():
        msg = f"source={str(path)!r} does not exist; give a Parquet file or a folder of them"
        raise OptionError(msg)
    files = pyarrow.dataset.dataset(path, format="parquet", partitioning="hive")
    # Little read-ahead: the default decodes far more than the build's memory.
    scanner = files.scanner(batch_size=_INPUT_ROWS, batch_readahead=1, fragment_readahead=1)
    return scanner.to_reader()


def _check_schema(schema: pa.Schema, keys: Keys) -> None:
    if not keys.names:
        msg = "key is empty; name the column, or the columns, to join on"
        raise OptionError(msg)
    if CODE in schema.names or len(set(schema.names)) < len(schema.names):
        msg = (
            f"the master's columns must have different names, none of them {CODE!r}: {schema.names}"
        )
        raise SchemaError(msg)


def _check_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        msg = f"{folder} is a file; a master is a folder: choose another path"
        raise MasterError(msg)
    foreign = folder.is_dir() and any(folder.iterdir()) and not (folder / MANIFEST).exists()
    if foreign and not all(item.name.startswith(".") for item in folder.iterdir()):
        msg = f"{folder} holds other files and no master; choose an empty folder or a new path"
        raise MasterError(msg)


@dataclass
class _Build:
    """One build: what it reads and where it writes."""

    reader: pa.RecordBatchReader
    keys: Keys
    folder: Path
    page_bytes: int
    memory: int
    progress: Callable[[Progress], None]

    def run(self, with_filter: bool) -> None:
        schema = page_schema(self.reader.schema, self.keys)
        sort = ExternalSort(schema, self.memory, self.folder)
        try:
            null_keys = self._read(sort)
            self._write(sort, schema, with_filter, null_keys)
        finally:
            sort.close()

    def _read(self, sort: ExternalSort) -> int:
        """Encode and sort all rows; give the number of those without a key."""
        read = 0
        for batch in self.reader:
            read += batch.num_rows
            for start in range(0, batch.num_rows, _INPUT_ROWS):
                sort.add(_encoded(batch.slice(start, _INPUT_ROWS), self.keys))
            self.progress(Progress("read", read, None))
        return read - sort.rows

    def _write(self, sort: ExternalSort, schema: pa.Schema, with_filter: bool, nulls: int) -> None:
        words = filter_words(sort.rows) if with_filter else 0
        if words * 8 > self.memory // 4:
            words = 0  # the build's own memory is a promise too
        keys = KeyFilter(np.zeros(words, dtype=np.uint64))
        with Draft(self.folder) as pages:
            writer = _PageWriter(pages.file, schema, self.page_bytes)
            for batch in sort.merged(self._reporter(sort.rows)):
                codes = writer.add(batch)
                if words:
                    keys.add(codes)
            writer.finish()
            self._publish(pages, writer, keys, nulls)

    def _reporter(self, total: int) -> Callable[[int], None]:
        done = 0

        def passed(rows: int) -> None:
            nonlocal done
            done += rows
            self.progress(Progress("write", done, total))

        return passed

    def _publish(self, pages: Draft, writer: _PageWriter, keys: KeyFilter, nulls: int) -> None:
        """Give the new files their names, then the manifest, then remove the old files."""
        index = writer.index()
        schema = self.reader.schema
        content = xxhash.xxh3_128(index)
        content.update(schema.serialize())
        snapshot = content.hexdigest()
        manifest = Manifest(
            snapshot=snapshot,
            key=self.keys.names,
            schema=schema,
            page_bytes=self.page_bytes,
            statistics=replace(writer.statistics(), null_keys=nulls),
            index_checksum=checksum(index),
            pages_bytes=writer.offset,
            filter_words=len(keys.words),
        )
        pages.publish(f"{snapshot}.pages")
        _write_file(self.folder, f"{snapshot}.index", index)
        if keys.nbytes:
            _write_file(self.folder, f"{snapshot}.filter", keys.words.data)
        _write_file(self.folder, MANIFEST, manifest.dump())
        for old in self.folder.iterdir():
            if old.suffix in {".pages", ".index", ".filter"} and old.stem != snapshot:
                old.unlink()


def _write_file(folder: Path, name: str, data: Any) -> None:  # noqa: ANN401 - bytes-like
    with Draft(folder) as draft:
        draft.file.write(data)
        draft.publish(name)


def _encoded(batch: pa.RecordBatch, keys: Keys) -> pa.RecordBatch:
    """Give a batch as pages hold it: the code first, plain types, no null keys."""
    codes = keys.encode([batch.column(name) for name in keys.names])
    schema = page_schema(batch.schema, keys)
    columns = [decode(batch.column(name)) for name in schema.names[1:]]
    rows = pa.RecordBatch.from_arrays([pa.array(codes.values), *columns], schema=schema)
    if codes.valid.all():
        # A copy: a slice would keep all of its source in memory.
        return rows.take(pa.array(np.arange(batch.num_rows)))
    return rows.filter(pa.array(codes.valid))


class _PageWriter:
    """Cuts sorted rows into pages and writes them."""

    def __init__(self, file: IO[bytes], schema: pa.Schema, page_bytes: int) -> None:
        self.offset = 0
        self._file, self._page_bytes = file, page_bytes
        self._room = page_bytes - _overhead(schema)
        self._rest = _empty(schema)
        self._lines: dict[str, array.array[int]] = {
            name: array.array("Q" if name == "checksum" else "q") for name in INDEX_SCHEMA.names
        }
        self._bytes = self._values = self._duplicates = self._most = 0
        self._last: int | None = None
        self._open: int | None = None  # the code whose parts go on

    def add(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Take rows that follow the earlier ones; give the codes that are new with them."""
        new = self._count(batch.column(0).to_numpy())
        self._cut(pa.concat_batches([self._rest, batch]) if self._rest.num_rows else batch, False)
        return new

    def finish(self) -> None:
        """Write what is left."""
        self._cut(self._rest, True)
        self._file.flush()

    def _count(self, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Count join values and their duplicates; give each code at its first row."""
        if not len(codes):
            return codes
        first = np.empty(len(codes), dtype=np.bool_)
        first[0] = codes[0] != self._last
        np.not_equal(codes[1:], codes[:-1], out=first[1:])
        bounds = np.flatnonzero(np.append(first, True))
        self._duplicates += int(bounds[0])
        self._most = max(self._most, self._duplicates, int(np.diff(bounds).max(initial=0)))
        if len(bounds) > 1:
            self._duplicates = int(bounds[-1] - bounds[-2])
        self._values += int(first.sum())
        self._last = int(codes[-1])
        return codes[first]

    def _cut(self, rows: pa.RecordBatch, final: bool) -> None:
        """Write all whole pages of ``rows``; keep the rest for the next call."""
        codes = rows.column(0).to_numpy()
        sizes = row_bytes(rows)
        ends = np.cumsum(sizes)
        start = 0
        while start < len(codes):
            used = int(ends[start - 1]) if start else 0
            fit = max(start + 1, int(np.searchsorted(ends, used + self._room, side="right")))
            if fit == len(codes) and not final:
                break
            end = self._page_end(codes, start, fit)
            self._write(rows.slice(start, end - start), sizes[start:end])
            start = end
        self._rest = rows.slice(start)

    def _page_end(self, codes: npt.NDArray[np.int64], start: int, fit: int) -> int:
        """Give the end of the page that starts at ``start`` and has room up to ``fit``."""
        code = int(codes[start])
        whole = fit == len(codes) or codes[fit] != codes[fit - 1]
        end = fit if whole else int(np.searchsorted(codes, codes[fit], side="left"))
        run = int(np.searchsorted(codes, code, side="right"))
        if code == self._open or end <= start:  # a join value with parts has its page alone
            end = min(fit, run)
        return end

    def _write(self, rows: pa.RecordBatch, sizes: npt.NDArray[np.int64]) -> None:
        data = rows.serialize()
        code, last = rows.column(0)[0].as_py(), rows.column(0)[-1].as_py()
        length = aligned(data.size)
        starts = code != self._open
        widest = int(sizes.max())
        line = (code, self.offset, checksum(data), data.size, rows.num_rows, widest, starts)
        for name, value in zip(INDEX_SCHEMA.names, line, strict=True):
            self._lines[name].append(int(value))
        self._file.write(data)
        self._file.write(bytes(length - data.size))
        self.offset += length
        self._bytes += int(sizes.sum())
        self._open = last

    def index(self) -> bytes:
        """Give the index file's content."""
        columns = [
            pa.array(np.frombuffer(self._lines[field.name], np.dtype(typecode))).cast(field.type)
            for field, typecode in zip(INDEX_SCHEMA, self._typecodes(), strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=INDEX_SCHEMA)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, INDEX_SCHEMA) as file:
            file.write_batch(batch)
        return bytes(sink.getvalue())

    def _typecodes(self) -> Iterator[str]:
        return (self._lines[name].typecode for name in INDEX_SCHEMA.names)

    def statistics(self) -> Statistics:
        """Give what was counted."""
        lines = self._lines
        return Statistics(
            rows=sum(lines["rows"]),
            parts=len(lines["rows"]),
            pages=sum(lines["starts"]),
            bytes=self._bytes,
            widest_row=max(lines["widest"], default=0),
            largest_part=aligned(max(lines["length"], default=0)),
            values=self._values,
            most_duplicates=self._most,
            null_keys=0,
        )


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _overhead(schema: pa.Schema) -> int:
    """Bound what a page has beside its rows: message header, and padding of each buffer."""
    header = int(_empty(schema).serialize().size)
    buffers = sum(len(pa.array([], field.type).buffers()) for field in schema)
    return header + 64 * buffers
