"""The format on disk: a manifest, an index of page parts, the pages, a filter.

::

    products/
      manifest.json             what the current snapshot is; replaced atomically
      <snapshot>-<id>.index     one line a part: first code, offset, length, rows, checksum
      <snapshot>-<id>.pages     parts, each an Arrow IPC record batch at a multiple of 4 KiB
      <snapshot>-<id>.filter    a Bloom filter over the codes (optional)
      <snapshot>-<id>.changes   the codes whose rows differ from the parent's (after a sync)
      <snapshot>-<id>.manifest  a copy of the manifest, which stays as long as the snapshot does
      .pins/<query>/<batch>     which snapshot a micro-batch reads
      .lock                     held by whoever builds

Every byte is under a checksum (XXH3): of each part with its padding in the index, of index,
filter and changes in the manifest, of the manifest in itself.

Rows are sorted by code. A *page* holds whole join values; only a join value that is larger than a
page by itself has several *parts*, and then nothing else shares its page. So a page, once met,
answers every stream row that waits for it.
"""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import xxhash

from semistream.arrow.keys import Keys
from semistream.errors import (
    CorruptPageError,
    FormatVersionError,
    MasterError,
    MasterNotFoundError,
    SchemaError,
)
from semistream.master.files.drafts import DATA
from semistream.master.files.filter import filter_words
from semistream.master.protocol import CODE, Statistics

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import numpy.typing as npt

__all__ = [
    "ALIGNMENT",
    "GENERATIONS",
    "MANIFEST",
    "Manifest",
    "aligned",
    "checksum",
    "lost_manifest",
]

FORMAT_VERSION = 2
ALIGNMENT = 4096
"""Bytes: O_DIRECT reads whole blocks of the disk."""
MANIFEST = "manifest.json"
GENERATIONS = 8
"""Earlier snapshots whose changes are kept: older hot sets are not worth carrying over."""
_CODE_BYTES = 8  # pages hold each row's code, uncompressed


def aligned(size: int) -> int:
    """Round a size up to whole blocks of the disk.

    Examples
    --------
    >>> aligned(1), aligned(4096), aligned(5000)
    (4096, 4096, 8192)
    """
    return -(-size // ALIGNMENT) * ALIGNMENT


def checksum(data: Any) -> int:  # noqa: ANN401 - anything with the buffer protocol
    """Compute the checksum (XXH3, 64 bits) of some bytes; at about 30 GB/s it is always on."""
    return xxhash.xxh3_64_intdigest(data)


@dataclass(frozen=True)
class Manifest:
    """The description of one snapshot."""

    snapshot: str
    files: str
    """Prefix of the names of the data files; another in every build."""
    key: tuple[str, ...]
    schema: pa.Schema
    page_bytes: int
    statistics: Statistics
    index_checksum: int
    pages_bytes: int
    filter_words: int
    """Length of the Bloom filter in 64-bit words, 0 where there is none."""
    filter_checksum: int
    parent: str = ""
    """The ``files`` of the snapshot that this one was made from by changes; empty if by none."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """The table that the rows were read from: ``kind``, ``uri``, ``version``, …."""
    changed: int = 0
    """Number of codes in the file of changes: 64 bits each, little endian, sorted."""
    changes_checksum: int = 0
    seed: int = 0
    """Seed of codes that are hashes, 128 bits; see `Keys.seed`."""

    def name(self, kind: str) -> str:
        """Return the name of a file: ``"pages"``, ``"index"``, ``"filter"``, ``"manifest"``, …."""
        return f"{self.files}.{kind}"

    @property
    def names(self) -> list[str]:
        """The names of all data files."""
        filters = ["filter"] if self.filter_words else []
        changes = ["changes"] if self.parent else []
        return [self.name(kind) for kind in ["pages", "index", *filters, *changes]]

    def changes(self, folder: Path) -> npt.NDArray[np.int64]:
        """Read the sorted codes whose rows differ from the parent's; none without a parent."""
        if not self.parent:
            return np.empty(0, dtype=np.int64)
        path = folder / self.name("changes")
        data = path.read_bytes()
        if len(data) != 8 * self.changed or checksum(data) != self.changes_checksum:
            msg = f"{path}: the changes are damaged, their checksum differs; build the master again"
            raise CorruptPageError(msg)
        return np.frombuffer(data, dtype="<i8").astype(np.int64)

    def dump(self) -> bytes:
        """Write the manifest as JSON."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values["schema"] = base64.b64encode(self.schema.serialize().to_pybytes()).decode()
        values["statistics"] = asdict(self.statistics)
        head = {"semistream_master": FORMAT_VERSION, "checksum": _json_checksum(values)}
        return json.dumps(head | values, indent=2).encode()

    @classmethod
    def load(cls, folder: Path, name: str = MANIFEST) -> Manifest:
        """Read a manifest; raise an error that says what is wrong with it."""
        path = folder / name
        try:
            values = json.loads(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            msg = f"{folder}: no master table is here; make one with semistream.build_master"
            if lost := lost_manifest(folder):
                copy = f"cp {folder / lost} {folder / MANIFEST}"
                msg = f"{folder}: {MANIFEST} is missing, a copy of it is not: {copy}"
            raise MasterNotFoundError(msg) from None
        except OSError as error:
            msg = f"{path}: the manifest cannot be read: {error.strerror}"
            failure = MasterError(msg)
            failure.errno = error.errno
            raise failure from error
        except (ValueError, RecursionError) as error:
            msg = f"{path}: the manifest is damaged ({error}); build the master again"
            raise MasterError(msg) from error
        version = values.pop("semistream_master", None) if isinstance(values, dict) else None
        if version != FORMAT_VERSION:
            msg = (
                f"{path}: format version {version!r}; this semistream reads version "
                f"{FORMAT_VERSION}: build the master again, or install the version that wrote it"
            )
            raise FormatVersionError(msg)
        return cls._parse(path, values)

    @classmethod
    def _parse(cls, path: Path, values: dict[str, Any]) -> Manifest:
        if values.pop("checksum", None) != _json_checksum(values):
            msg = f"{path}: the manifest is damaged, its checksum differs; build the master again"
            raise MasterError(msg)
        try:
            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(values.pop("schema"))))
            statistics = Statistics(**values.pop("statistics"))
            key = tuple(values.pop("key"))
            manifest = cls(schema=schema, statistics=statistics, key=key, **values)
            problem = next(_problems(manifest), None)
        except (AttributeError, KeyError, TypeError, ValueError, pa.ArrowException) as error:
            problem = f"{type(error).__name__}: {error}"
        if problem is not None:
            msg = f"{path}: the manifest says what cannot be ({problem}); build the master again"
            raise MasterError(msg)
        return manifest


def _problems(manifest: Manifest) -> Iterator[str]:
    """Yield what no build can have written: types and sizes that contradict each other.

    The checksum shows damage, not intent. What passes here is trusted elsewhere: names become
    paths, sizes become memory and loops.
    """
    m, s = manifest, manifest.statistics
    if not _is_files(m.files) or m.snapshot != m.files.partition("-")[0]:
        yield f"snapshot is {m.snapshot!r}, files is {m.files!r}"
    if m.parent != "" and not _is_files(m.parent):
        yield f"parent is {m.parent!r}"
    numbers = {name: getattr(m, name) for name in _NUMBERS} | vars(s)
    for name, number in numbers.items():
        if type(number) is not int or not 0 <= number < 2**64:
            yield f"{name} is {number!r}"
    if type(m.seed) is not int or not 0 <= m.seed < 2**128:
        yield "the seed of hashes is no number of 128 bits"
    if not _fits(m, s):
        yield "sizes and counts do not go together"
    named = isinstance(m.source, dict) and all(
        isinstance(m.source.get(name), str) for name in ("kind", "uri")
    )
    if m.source != {} and not named:
        yield f"source is {m.source!r}"
    try:
        Keys.of(m.schema, m.key)
    except SchemaError as error:
        yield str(error)
    names = m.schema.names
    distinct = all(len(set(some)) == len(some) for some in (m.key, names))
    if not m.key or CODE in names or not distinct:
        yield f"key is {m.key}, columns are {names}"


_NUMBERS = (
    *("page_bytes", "index_checksum", "pages_bytes", "filter_words", "filter_checksum"),
    *("changed", "changes_checksum"),
)


def _is_files(name: object) -> bool:
    return isinstance(name, str) and DATA.fullmatch(f"{name}.manifest") is not None


def _fits(m: Manifest, s: Statistics) -> bool:
    words = filter_words(s.values)  # a build stores no larger filter
    return (
        not m.page_bytes % ALIGNMENT
        and 0 < m.page_bytes < 2**31
        and s.pages <= s.parts <= s.rows
        and s.values <= s.rows
        and s.most_duplicates <= s.rows
        and s.rows * _CODE_BYTES <= m.pages_bytes
        and s.parts * ALIGNMENT <= m.pages_bytes
        and s.largest_part <= m.pages_bytes
        and m.filter_words <= words
        and not m.filter_words & (m.filter_words - 1)
    )


def lost_manifest(folder: Path) -> str:
    """Return the name of the newest copy of a manifest whose pages are there; empty if none."""
    copies = [
        path
        for path in folder.glob("*.manifest")
        if DATA.fullmatch(path.name) and path.with_suffix(".pages").exists()
    ]
    return max(copies, key=lambda path: path.stat().st_mtime).name if copies else ""


def _json_checksum(values: dict[str, Any]) -> int:
    try:
        return checksum(json.dumps(values, sort_keys=True).encode())
    except RecursionError:  # so deep that no build wrote it
        return -1
