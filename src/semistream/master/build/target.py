"""The target of a build, local or by Spark: checks, the folder, publishing."""

from __future__ import annotations

import secrets
import uuid
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import xxhash

from semistream.arrow.keys import Keys
from semistream.errors import (
    BudgetError,
    MasterError,
    OptionError,
    SchemaError,
)
from semistream.master.arguments import master_folder
from semistream.master.build.page_size import best_page_bytes
from semistream.master.files.drafts import DATA, Draft, exclusive, publish, remove_others, writing
from semistream.master.files.filter import filter_words
from semistream.master.files.format import (
    ALIGNMENT,
    MANIFEST,
    Manifest,
    aligned,
    checksum,
)
from semistream.master.files.index import LONGEST
from semistream.master.protocol import page_schema
from semistream.master.snapshots.removal import remove_unneeded
from semistream.names import listed
from semistream.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from semistream.master.build.pages import Counts
    from semistream.master.files.filter import KeyFilter
    from semistream.master.files.index import IndexWriter

__all__ = ["Origin", "Target", "check_sizes"]

_PAGES_IN_MEMORY = 8  # a page exists several times while it is sorted, cut and written


def check_sizes(
    page_bytes: int | str, memory: int | str, path: str | os.PathLike[str]
) -> tuple[int, int]:
    """Parse the bytes of a page and of the memory; refuse those that do not go together.

    Of ``"auto"`` pages the disk of the path decides.
    """
    room = parse_bytes(memory)
    if page_bytes == "auto":
        page_bytes = best_page_bytes(master_folder(path).absolute())
    size = parse_bytes(page_bytes, "page_bytes")
    if size > LONGEST:
        msg = (
            f"page_bytes={format_bytes(size)} is too large; a page has at most "
            f"{LONGEST // ALIGNMENT * ALIGNMENT} bytes, and sensible ones have a few KB to a few MB"
        )
        raise OptionError(msg)
    if size % ALIGNMENT:
        msg = f"page_bytes={size} is not a multiple of {ALIGNMENT} bytes; take {aligned(size)}"
        raise OptionError(msg)
    if size * _PAGES_IN_MEMORY > room:
        least = format_bytes(size * _PAGES_IN_MEMORY)
        msg = (
            f"memory={format_bytes(room)} is too little to build pages of "
            f"{format_bytes(size)}; give at least {least}, or choose smaller pages"
        )
        raise BudgetError(msg)
    return size, room


@dataclass(frozen=True)
class Origin:
    """The origin of a snapshot's rows."""

    source: Mapping[str, Any] = field(default_factory=dict)
    """The table's entry in the manifest: JSON."""
    parent: str = ""
    """The ``files`` of the snapshot that was changed; empty where all rows were read."""
    changes: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """The sorted codes whose rows differ from the parent's."""

    @property
    def content(self) -> memoryview:
        """The file of changes."""
        return np.ascontiguousarray(self.changes, dtype="<i8").data

    @property
    def fields(self) -> dict[str, Any]:
        """Its fields of the manifest."""
        return {
            "parent": self.parent,
            "source": self.source,
            "changed": len(self.changes),
            "changes_checksum": checksum(self.content) if self.parent else 0,
        }


@dataclass(frozen=True)
class Target:
    """The master that a build writes: its columns, its key, its folder."""

    folder: Path
    schema: pa.Schema
    keys: Keys
    page_bytes: int

    @classmethod
    def of(
        cls,
        path: str | os.PathLike[str],
        schema: pa.Schema,
        key: str | Sequence[str],
        page_bytes: int,
        seed: int | None = None,
    ) -> Target:
        """Check that such a master can be built there, with this seed or one of its own."""
        names = listed("key", [key] if isinstance(key, str) else key)
        keys, folder = _keys(schema, names), master_folder(path)
        with writing(folder):
            _check_folder(folder)
        seed = _seed(folder, keys) if seed is None else seed
        return cls(folder, schema, replace(keys, seed=seed), page_bytes)

    @property
    def page_schema(self) -> pa.Schema:
        """The columns as pages hold them."""
        return page_schema(self.schema, self.keys)

    @contextmanager
    def building(self) -> Iterator[None]:
        """Lock the folder for this build; restore it if the build fails before it publishes."""
        with exclusive(self.folder):
            _restore_copy(self.folder)
            remove_unneeded(self.folder)
            before, names = _manifest(self.folder), [path.name for path in self.folder.iterdir()]
            try:
                yield
            except BaseException:
                if _manifest(self.folder) == before:
                    remove_others(self.folder, names)
                # Else it failed after the new manifest took over, perhaps not on disk yet: if it
                # is not, the old snapshot is the master again after a power cut.
                raise

    def publish(
        self,
        pages: Draft,
        lines: IndexWriter,
        counts: Counts,
        keys: KeyFilter,
        origin: Origin | None = None,
    ) -> Manifest:
        """Name the new files, then the manifest; remove what no one needs."""
        origin = origin or Origin()
        index, statistics = lines.dump(), counts.statistics(lines.lines)
        keys = keys.folded(min(len(keys.words), filter_words(statistics.values)))
        snapshot = self._snapshot(index)
        manifest = Manifest(
            snapshot=snapshot,
            files=f"{snapshot}-{uuid.uuid4().hex[:8]}",
            key=self.keys.names,
            schema=self.schema,
            page_bytes=self.page_bytes,
            statistics=statistics,
            index_checksum=checksum(index),
            pages_bytes=lines.end,
            filter_words=len(keys.words),
            filter_checksum=checksum(keys.words.data),
            seed=self.keys.seed,
            **origin.fields,
        )
        contents: dict[str, bytes | memoryview] = {
            "index": index,
            "filter": keys.words.data,
            "changes": origin.content,
        }
        kinds = [kind for kind in contents if manifest.name(kind) in manifest.names]
        self._publish(manifest, {"pages": pages}, {kind: contents[kind] for kind in kinds})
        remove_unneeded(self.folder)
        return manifest

    def restate(self, manifest: Manifest) -> None:
        """Replace the manifest by another one of the same data files."""
        self._publish(manifest, {}, {})

    def _publish(
        self,
        manifest: Manifest,
        drafts: Mapping[str, Draft],
        contents: Mapping[str, bytes | memoryview],
    ) -> None:
        files, text = dict(drafts), manifest.dump()
        with ExitStack() as stack:
            for kind, content in {**contents, "manifest": text}.items():
                files[kind] = stack.enter_context(Draft(self.folder, content))
            last = stack.enter_context(Draft(self.folder, text))
            names = {manifest.name(kind): draft for kind, draft in files.items()}
            publish(self.folder, names, (MANIFEST, last))

    def _snapshot(self, index: bytes) -> str:
        """Compute an id of the content: the index holds the checksum of every page."""
        content = xxhash.xxh3_128(index)
        content.update(self.schema.serialize())
        content.update("\0".join(self.keys.names).encode())
        return content.hexdigest()


def _manifest(folder: Path) -> bytes:
    try:
        return (folder / MANIFEST).read_bytes()
    except OSError:  # none, or none that can be read
        return b""


def _keys(schema: pa.Schema, names: Sequence[str]) -> Keys:
    if not names or len(set(names)) < len(names):
        msg = f"key={names} must name the column to join on, or several, each once"
        raise OptionError(msg)
    if len(set(schema.names)) < len(schema.names):
        msg = f"the master's columns must have different names: {schema.names}; rename some"
        raise SchemaError(msg)
    for column in schema:
        schema_of_it = pa.schema([column])
        try:
            storable = pa.ipc.read_schema(schema_of_it.serialize()) == schema_of_it
        except pa.ArrowInvalid:
            storable = False
        if not storable:
            msg = (
                f"column {column.name!r}: Arrow's format does not keep the type {column.type} (a "
                "dictionary of dictionaries or extensions, an extension type that is not "
                "registered); cast it first"
            )
            raise SchemaError(msg)
    keys = Keys.of(schema, names)
    page_schema(schema, keys)
    return keys


def _seed(folder: Path, keys: Keys) -> int:
    """Draw a seed for codes that are hashes; keep that of a master that is built again."""
    if keys.exact:
        return 0
    try:
        old = Manifest.load(folder)
        same = Keys.of(old.schema, old.key) == keys
    except (MasterError, SchemaError):
        same = False
    return old.seed if same else secrets.randbits(128)


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


def _restore_copy(folder: Path) -> None:
    """Copy the current manifest where its copy was lost: a micro-batch may need this snapshot."""
    with suppress(MasterError):  # there is no master yet, or one of another version
        copy = folder / Manifest.load(folder).name("manifest")
        if not copy.exists():
            copy.hardlink_to(folder / MANIFEST)
