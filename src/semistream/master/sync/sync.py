"""Sync of a master with a newer version of its source: read changes, sort, write a snapshot."""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from semistream.errors import OptionError, SchemaError
from semistream.master.arguments import callback, master_folder
from semistream.master.build.build import Progress, report_writes
from semistream.master.build.sort import ExternalSort
from semistream.master.build.target import Origin, Target, check_sizes
from semistream.master.files.drafts import Draft
from semistream.master.files.format import Manifest
from semistream.master.files.master import FileMaster
from semistream.master.lake.kinds import find_table
from semistream.master.lake.table import Scope, UnreadError
from semistream.master.place import show_source
from semistream.master.source import Rows
from semistream.master.sync.merge import MisfitError, add_weight
from semistream.master.sync.rewrite import Rewrite, count_rows, parent_filter
from semistream.master.sync.upserts import caller_changes
from semistream.units import format_bytes

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from semistream.master.lake.table import Feed, LakeTable

__all__ = ["Synced", "sync_master"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Synced:
    """What a sync has done, and the master as it is now."""

    master: FileMaster
    how: str
    """``"change data feed"``, ``"files"``, ``"all rows"``, ``"given"``; empty: nothing was new."""
    values: int = 0
    """Join values whose rows changed."""
    upserted: int = 0
    """Rows that were not there before."""
    deleted: int = 0
    """Rows of join values that have none any more."""
    pages_rewritten: int = 0
    pages_copied: int = 0
    bytes_written: int = 0
    """Bytes of pages that were not copied."""

    @property
    def version(self) -> Any:  # noqa: ANN401 - as the kind of table has it
        """The version of the table that the master has now."""
        return self.master.manifest.source.get("version")

    def describe(self) -> str:
        """Describe in a line what was done."""
        if not self.values:
            return f"{self.master.path}: nothing new, {self.master.rows:,} rows"
        return (
            f"{self.master.path}: {self.upserted:,} rows upserted, {self.deleted:,} deleted, by "
            f"{self.how}; {self.pages_rewritten:,} pages rewritten, {self.pages_copied:,} copied, "
            f"{format_bytes(self.bytes_written)} written; {self.master.rows:,} rows now"
        )


def sync_master(
    path: str | os.PathLike[str],
    version: int | None = None,
    *,
    upserts: pa.Table | pa.RecordBatch | pa.RecordBatchReader | None = None,
    deletes: Any = None,  # noqa: ANN401 - a table of keys, an array, a list
    source: Any = None,  # noqa: ANN401 - as build_master takes it
    memory: int | str = "1GB",
    progress: Callable[[Progress], None] | None = None,
) -> Synced:
    """Bring a master to a newer version of its table by the rows that changed.

    The result is a new snapshot with the rows of a master built anew, put in place atomically;
    whoever reads the old one goes on. A sync that fails or is killed before that changes nothing.
    Pages that no change touches are copied as they are.

    Parameters
    ----------
    path
        The folder of the master.
    version
        The version to come to, by default the newest. To go back, build again.
    upserts
        Changes from elsewhere, instead of those of the table: for each key in it, its rows replace
        all rows of that key. A master that was changed so follows its table no more.
    deletes
        Keys that go, with all their rows: a pyarrow Table of the key columns; for a key of one
        column also an array or a list. Their types must go with the key's as in joins. Upserts
        come after deletes.
    source
        Where the table is now, if it moved or needs a library's object with credentials: what
        `build_master` takes.
    memory
        What reading and sorting the changes may use. All rows of one changed join value are held at
        once.
    progress
        Progress callback, called now and then with a `Progress`.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, semistream as ss
    >>> path = tempfile.mkdtemp()
    >>> _ = ss.build_master(pa.table({"id": [1, 2], "price": [1.5, 9.0]}), path, key="id")
    >>> new = pa.table({"id": [2, 3], "price": [8.5, 4.0]})
    >>> synced = ss.sync_master(path, upserts=new, deletes=[1])
    >>> synced.upserted, synced.deleted, synced.master.rows
    (2, 1, 2)
    """
    by_caller = upserts is not None or deletes is not None
    if by_caller and (version is not None or source is not None):
        msg = "give either upserts and deletes, or a version or source to read the changes from"
        raise OptionError(msg)
    folder, report = master_folder(path), callback(progress, "progress")
    target = _target(Manifest.load(folder), folder)
    room = check_sizes(target.page_bytes, memory, folder)[1]
    with target.building():
        parent = FileMaster.current(folder)
        sync = _Sync(parent, _target(parent.manifest, folder), room, report)
        if by_caller:
            return sync.apply(caller_changes(parent, upserts, deletes), {})
        return sync.follow(_table(parent.manifest, version, source))


def _target(manifest: Manifest, folder: Path) -> Target:
    m = manifest
    return Target.of(folder, m.schema, m.key, m.page_bytes, m.seed)


def _table(manifest: Manifest, version: int | None, source: Any) -> LakeTable:  # noqa: ANN401
    note = manifest.source
    if not note:
        msg = (
            "this master does not follow a table: it was built from rows in memory or by Spark, or "
            "changed by upserts; give upserts= or deletes=, or build it from a table of files"
        )
        raise OptionError(msg)
    # Columns that were added to the table are none of the master's: queries run on those it has.
    table = find_table(source or note["uri"], version, tuple(manifest.schema.names))
    if table.kind != note["kind"]:
        msg = (
            f"{show_source(source or note['uri'])} is of kind {table.kind}, the master was built "
            f"from {note['kind']} ({note['uri']}); build it again"
        )
        raise OptionError(msg)
    return table


@dataclass(frozen=True)
class _Sync:
    """One sync: what it changes, and where it reports its progress."""

    parent: FileMaster
    target: Target
    memory: int
    progress: Callable[[Progress], None]

    def follow(self, table: LakeTable) -> Synced:
        """Bring the master to the version of a table, by the cheapest way that works."""
        since = self.parent.manifest.source
        if not table.is_newer(since):
            return Synced(self.parent, "")
        # Pages do not care which columns may be null: the table's say is taken over.
        schema = _check_schema(self.parent.schema, table)
        manifest = replace(self.parent.manifest, schema=schema)
        parent = replace(self.parent, manifest=manifest, schema=schema)
        sync = replace(self, parent=parent, target=_target(manifest, self.target.folder))
        *ways, last = table.feeds(since, self.memory // 16)
        for feed in ways:
            try:
                return sync.apply(feed.guarded(table.errors), table.note)
            except (MisfitError, UnreadError) as error:  # compare more
                log.info("%s: not by %s: %s", self.parent.path, feed.how, error)
        try:
            return sync.apply(last.guarded(table.errors), table.note)
        except UnreadError as error:
            msg = (
                f"{show_source(table.note['uri'])} cannot be read ({error}); the master is as it "
                "was. Try again: a file may be half written now, or a store away"
            )
            raise UnreadError(msg) from error

    def apply(self, feed: Feed, note: Mapping[str, Any]) -> Synced:
        """Write the snapshot that these changes make."""
        empty = pa.RecordBatch.from_pylist([], schema=self.parent.page_schema)
        schema = add_weight(empty, 0).schema
        with closing(ExternalSort(schema, self.memory, self.target.folder)) as sort:
            nulls = self._read(feed, sort)
            return self._write(feed, sort, nulls, note)

    def _read(self, feed: Feed, sort: ExternalSort) -> int:
        """Sort all changes; return how many more of them have no key than before."""
        read = nulls = 0
        for weight, batch in feed.batches():
            rows = Rows(pa.RecordBatchReader.from_batches(batch.schema, [batch]), None)
            for count, coded in rows.encoded(self.target.keys, self.memory):
                read += count
                nulls += weight * (count - coded.num_rows)
                sort.add(add_weight(coded, weight))
            self.progress(Progress("read", read, None))
        return nulls

    def _write(self, feed: Feed, sort: ExternalSort, nulls: int, note: Mapping[str, Any]) -> Synced:
        parent, known = self.parent, self.parent.statistics.null_keys
        report = report_writes(self.progress, parent.rows)
        keys = parent_filter(parent, self.memory)
        with (
            Draft(self.target.folder) as pages,
            closing(Rewrite(parent, pages, keys, feed.scope, report)) as rewrite,
        ):
            rewrite.run(sort.merged())
            changed, tally = rewrite.changed(), rewrite.tally
            null_keys = nulls if feed.scope is Scope.ALL else known + nulls
            if len(changed) or null_keys != known:
                counts, keys = count_rows(rewrite, pages.file, null_keys, self.memory)
                origin = Origin(note, parent.manifest.files, changed)
                self.target.publish(pages, rewrite.writer.index, counts, keys, origin)
            elif note:
                self.target.restate(replace(parent.manifest, source=note))
            master = FileMaster.current(self.target.folder)
            if not len(changed):
                return Synced(master, feed.how)
            copied = vars(tally).copy()
            written = master.manifest.pages_bytes - copied.pop("bytes_copied")
            return Synced(master, feed.how, len(changed), bytes_written=written, **copied)


def _check_schema(old: pa.Schema, table: LakeTable) -> pa.Schema:
    """Return the master's schema with nulls where the table allows them; refuse other types."""

    def columns(schema: pa.Schema) -> str:
        return ", ".join(f"{field.name}: {field.type}" for field in schema)

    try:
        new = table.schema
    except SchemaError as error:
        msg = f"the table has lost a column of the master: {error} Build the master again"
        raise SchemaError(msg) from error
    if (new.names, new.types) != (old.names, old.types):
        msg = (
            f"the table's columns are not those of the master any more: it has {columns(new)}; the "
            f"master has {columns(old)}. Build the master again"
        )
        raise SchemaError(msg)
    fields = [field.with_nullable(new.field(field.name).nullable) for field in old]
    return pa.schema(fields, old.metadata)
