"""Building a master table: encode keys, sort out of core, cut pages, publish."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import xxhash

from semistream.errors import (
    BudgetError,
    MasterError,
    MasterNotFoundError,
    OptionError,
    SchemaError,
)
from semistream.keys import Keys
from semistream.master.files import DATA, Draft, exclusive, publish, remove_others
from semistream.master.filter import KeyFilter, filter_words
from semistream.master.format import (
    ALIGNMENT,
    CODE,
    MANIFEST,
    Manifest,
    aligned,
    checksum,
    page_schema,
)
from semistream.master.pages import PageWriter
from semistream.master.sort import ExternalSort
from semistream.master.source import Rows, Source
from semistream.master.store import Master, open_master
from semistream.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

__all__ = ["Progress", "build_master"]

_PAGES_IN_MEMORY = 8


@dataclass(frozen=True)
class Progress:
    """How far a build has come."""

    phase: str
    """``"read"``, then ``"write"``."""
    rows: int
    total: int | None
    """Rows in all, where they are known: not while a RecordBatchReader is read."""


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
        The size of a page; larger ones suit sequential reads, smaller ones random reads. Only a
        page of a single row may be larger.
    filter
        Whether to store a Bloom filter, which answers absent keys without a page.
    memory
        What the build may use, beside the batches that a RecordBatchReader gives.
    progress
        Called now and then with a `Progress`.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, semistream as ss
    >>> products = pa.table({"product_id": [2, 1], "price": [1.5, 9.0]})
    >>> master = ss.build_master(products, tempfile.mkdtemp(), key="product_id")
    >>> master.rows, master.pages, master.key
    (2, 1, ('product_id',))
    """
    size, room = parse_bytes(page_bytes, "page_bytes"), parse_bytes(memory)
    _check_sizes(size, room)
    rows = Rows.of(source, room)
    keys = _keys(rows.reader.schema, [key] if isinstance(key, str) else list(key))
    folder = Path(path)
    _check_folder(folder)
    with exclusive(folder):
        _Build(rows, keys, folder, size, room, progress or _silent).run(filter)
    return open_master(folder)


def _silent(_: Progress) -> None:
    pass


def _check_sizes(page_bytes: int, memory: int) -> None:
    if page_bytes % ALIGNMENT:
        near = aligned(page_bytes)
        msg = f"page_bytes={page_bytes} is not a multiple of {ALIGNMENT} bytes; take {near}"
        raise OptionError(msg)
    if page_bytes * _PAGES_IN_MEMORY > memory:
        least = format_bytes(page_bytes * _PAGES_IN_MEMORY)
        msg = (
            f"memory={format_bytes(memory)} is too little to build pages of "
            f"{format_bytes(page_bytes)}; give at least {least}, or choose smaller pages"
        )
        raise BudgetError(msg)


def _keys(schema: pa.Schema, names: list[str]) -> Keys:
    if not names or len(set(names)) < len(names):
        msg = f"key={names} must name the column to join on, or several, each once"
        raise OptionError(msg)
    if CODE in schema.names or len(set(schema.names)) < len(schema.names):
        msg = (
            f"the master's columns must have different names, none of them {CODE!r}: {schema.names}"
        )
        raise SchemaError(msg)
    for field in schema:
        if not _storable(field):
            msg = (
                f"column {field.name!r}: Arrow's format does not keep the type {field.type} (a "
                "dictionary of dictionaries or extensions, an extension type that is not "
                "registered); cast it first"
            )
            raise SchemaError(msg)
    return Keys.of(schema, names)


def _storable(field: pa.Field) -> bool:
    schema = pa.schema([field])
    try:
        return bool(pa.ipc.read_schema(schema.serialize()) == schema)
    except pa.ArrowInvalid:
        return False


def _check_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        msg = f"{folder} is a file; a master is a folder: choose another path"
        raise MasterError(msg)
    if not folder.exists() or (folder / MANIFEST).exists():
        return
    # What a build that was killed left behind is no obstacle; the next one removes it.
    if any(not (p.name.startswith(".") or DATA.fullmatch(p.name)) for p in folder.iterdir()):
        msg = f"{folder} holds other files and no master; choose an empty folder or a new path"
        raise MasterError(msg)


@dataclass
class _Build:
    """One build: what it reads and where it writes."""

    rows: Rows
    keys: Keys
    folder: Path
    page_bytes: int
    memory: int
    progress: Callable[[Progress], None]

    def run(self, with_filter: bool) -> None:
        remove_others(self.folder, self._current_names())
        schema = page_schema(self.rows.reader.schema, self.keys)
        sort = ExternalSort(schema, self.memory, self.folder)
        try:
            null_keys = self._read(sort)
            self._write(sort, schema, with_filter, null_keys)
        except BaseException:
            remove_others(self.folder, self._current_names())
            raise
        finally:
            sort.close()

    def _current_names(self) -> list[str]:
        try:
            return Manifest.load(self.folder).names
        except MasterNotFoundError:
            return []
        except MasterError:  # another version's, perhaps: it stays until this build is done
            return [path.name for path in self.folder.iterdir()]

    def _read(self, sort: ExternalSort) -> int:
        """Encode and sort all rows; give the number of those without a key."""
        read = 0
        for count, batch in self.rows.encoded(self.keys, self.memory):
            read += count
            sort.add(batch)
            self.progress(Progress("read", read, self.rows.total))
        return read - sort.rows

    def _write(self, sort: ExternalSort, schema: pa.Schema, with_filter: bool, nulls: int) -> None:
        words = filter_words(sort.rows) if with_filter else 0
        keys = KeyFilter.zeros(KeyFilter.affordable(words, sort.rows, self.memory // 4))
        with Draft(self.folder) as pages:
            writer = PageWriter(pages.file, schema, self.page_bytes)
            for batch in sort.merged(self._reporter(sort.rows)):
                codes = writer.add(batch)
                if keys.nbytes:
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

    def _publish(self, pages: Draft, writer: PageWriter, keys: KeyFilter, nulls: int) -> None:
        """Give the new files their names, then the manifest, then remove the old files."""
        index, statistics = writer.index.dump(), writer.statistics(nulls)
        keys = keys.folded(min(len(keys.words), filter_words(statistics.values)))
        snapshot = self._snapshot(index)
        manifest = Manifest(
            snapshot=snapshot,
            files=f"{snapshot}-{uuid.uuid4().hex[:8]}",
            key=self.keys.names,
            schema=self.rows.reader.schema,
            page_bytes=self.page_bytes,
            statistics=statistics,
            index_checksum=checksum(index),
            pages_bytes=writer.offset,
            filter_words=len(keys.words),
            filter_checksum=checksum(keys.words.data),
        )
        with ExitStack() as drafts:
            data = {manifest.name("pages"): pages}
            data[manifest.name("index")] = drafts.enter_context(Draft(self.folder, index))
            if keys.nbytes:
                words = drafts.enter_context(Draft(self.folder, keys.words.data))
                data[manifest.name("filter")] = words
            last = drafts.enter_context(Draft(self.folder, manifest.dump()))
            publish(self.folder, data, (MANIFEST, last))
        remove_others(self.folder, manifest.names)

    def _snapshot(self, index: bytes) -> str:
        """Give an id of the content: the index holds the checksum of every page."""
        content = xxhash.xxh3_128(index)
        content.update(self.rows.reader.schema.serialize())
        content.update("\0".join(self.keys.names).encode())
        return content.hexdigest()
