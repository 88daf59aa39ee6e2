"""Reading some rows of a stream: from files, or from a Kafka topic."""

from __future__ import annotations

from collections import deque
from functools import partial
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds

from semistream.cost.sampling.json_rows import json_rows
from semistream.cost.sampling.topic import SCHEME, read_topic
from semistream.errors import OptionError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    Batches = Iterator[pa.RecordBatch]
    Types = Mapping[str, pa.DataType]
    Piece = Callable[[], Batches]

__all__ = ["read_stream"]

_BATCH_ROWS = 8192
_OPEN = 16  # pieces that are read in turn
_PACKED = {".gz", ".bz2"}
_LEGAL = (
    "a file or folder of Parquet (.parquet), CSV (.csv), JSON lines (.json, .jsonl, .ndjson) or "
    "Arrow (.arrow, .feather, .ipc), or a topic as kafka://host:port/topic"
)


def read_stream(source: str | os.PathLike[str], types: Types, *, seed: int = 0) -> Batches:
    r"""Give rows of a stream that is stored somewhere, from here and there where that is cheap.

    - Parquet files, Arrow files, and folders: a batch of 8,192 rows each from 16 pieces in turn, in
      random order; a piece is a row group, a record batch, or a file.
    - A single CSV or JSON file, or an Arrow stream: from its beginning.
    - A Kafka topic, with JSON values: from the earliest messages on, to the end it has.

    Files and folders beginning with ``_`` or ``.`` are left out.

    Parameters
    ----------
    source
        A file, a folder with files of one kind, or ``"kafka://host:port/topic"``.
    types
        The types of columns, where the source itself (CSV, JSON) has none.
    seed
        The same seed gives the same rows.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "sales.csv"
    >>> _ = path.write_text("id,amount\n007,3\n")
    >>> next(read_stream(path, {"id": pa.string()})).to_pylist()
    [{'id': '007', 'amount': 3}]
    >>> read_stream("sales.xlsx", {})
    Traceback (most recent call last):
    semistream.errors.OptionError: sales.xlsx cannot be sampled; give a file or folder of ...
    """
    if str(source).startswith(SCHEME):
        return read_topic(str(source), types)
    files = _files(Path(source))
    kinds = {_kind(file) for file in files}
    if len(kinds) != 1 or None in kinds:
        raise OptionError(f"{source} cannot be sampled; give {_LEGAL}")
    pieces = _READERS[kinds.pop() or ""](files, types)
    return _in_turn(pieces, np.random.default_rng(seed), str(source))


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return [file for file in files if not _hidden(file.relative_to(path))]


def _hidden(path: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.parts)


def _kind(file: Path) -> str | None:
    suffixes = [suffix.lower() for suffix in file.suffixes]
    if suffixes and suffixes[-1] in _PACKED:
        suffixes.pop()
    return _SUFFIXES.get(suffixes[-1]) if suffixes else None


def _in_turn(pieces: Iterable[Piece], rng: np.random.Generator, source: str) -> Batches:
    """Give a batch of each of some pieces in turn; one that has ended makes room for another."""
    try:
        waiting = list(pieces)
        order = iter(rng.permutation(len(waiting)).tolist())
        opened = deque(waiting[number]() for number in islice(order, _OPEN))
        while opened:
            if (batch := next(opened[0], None)) is not None:
                yield batch
                opened.rotate(-1)
            else:
                opened.popleft()
                opened.extend(waiting[number]() for number in islice(order, 1))
    except FileNotFoundError:
        raise OptionError(f"{source}: there is no such file; give {_LEGAL}") from None
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowKeyError) as error:
        msg = f"{source} cannot be read: {error}. Is it of the kind that its name says?"
        raise OptionError(msg) from error


def _parquet(files: Sequence[Path], types: Types) -> Iterator[Piece]:  # noqa: ARG001 - has its own
    for fragment in _fragments(files, ds.ParquetFileFormat()):
        yield from (_piece(group) for group in fragment.split_by_row_group())


def _csv(files: Sequence[Path], types: Types) -> Iterator[Piece]:
    # Not "NA", which Arrow takes for null as well: it is Namibia.
    nulls = {"null_values": ["", "null", "NULL"], "strings_can_be_null": True}
    convert = pyarrow.csv.ConvertOptions(column_types=dict(types), **nulls)
    return map(_piece, _fragments(files, ds.CsvFileFormat(convert_options=convert)))


def _json(files: Sequence[Path], types: Types) -> Iterator[Piece]:
    return (partial(_lines, file, types) for file in files)


def _lines(file: Path, types: Types) -> Batches:
    with pa.input_stream(str(file)) as packed, BufferedReader(packed) as content:
        while lines := list(islice(content, _BATCH_ROWS)):
            yield from json_rows(lines, types)


def _fragments(files: Sequence[Path], kind: ds.FileFormat) -> Iterator[ds.Fragment]:
    system = pa.fs.LocalFileSystem()
    return (kind.make_fragment(str(file), system) for file in files)


def _piece(fragment: ds.Fragment) -> Piece:
    def read() -> Batches:
        # Read ahead as little as can be: of most pieces only the beginning is wanted.
        return iter(
            fragment.to_batches(batch_size=_BATCH_ROWS, batch_readahead=1, use_threads=False)
        )

    return read


def _arrow(files: Sequence[Path], types: Types) -> Iterator[Piece]:  # noqa: ARG001 - has its own
    for file in files:
        data = pa.memory_map(str(file))
        try:
            reader = pa.ipc.open_file(data)
        except pa.ArrowInvalid:  # not a file of batches at known places: a stream, perhaps
            yield _stream(pa.ipc.open_stream(pa.memory_map(str(file))))
        else:
            yield from (_stored(reader, number) for number in range(reader.num_record_batches))


def _stream(reader: pa.RecordBatchReader) -> Piece:
    return lambda: (part for batch in reader for part in _cut(batch))


def _stored(reader: pa.ipc.RecordBatchFileReader, number: int) -> Piece:
    return lambda: _cut(reader.get_batch(number))


def _cut(batch: pa.RecordBatch) -> Batches:
    return (batch.slice(start, _BATCH_ROWS) for start in range(0, batch.num_rows, _BATCH_ROWS))


_READERS = {"parquet": _parquet, "csv": _csv, "json": _json, "arrow": _arrow}
_SUFFIXES = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv"}
_SUFFIXES |= dict.fromkeys((".json", ".jsonl", ".ndjson"), "json")
_SUFFIXES |= dict.fromkeys((".arrow", ".feather", ".ipc"), "arrow")
