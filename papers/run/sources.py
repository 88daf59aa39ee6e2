"""What is joined: masters and streams of the papers' kinds, made once and kept."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.engine.workload import BATCH_ROWS, Feed, Workload
from papers.run.weather import FOLDER, origin, read_reports, stand_in
from semistream import build_master
from semistream.errors import OptionError
from semistream.master import open_master
from semistream.planning.demand import Demand
from semistream.planning.view import View, take_view
from semistream.workloads import Zipf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from papers.experiment import Data
    from papers.run.scale import Scale
    from semistream.master import FileMaster

__all__ = ["Prepared", "origin_of", "prepare"]

_PARTSUPP = 800_000  # rows at scale factor 1


@dataclass(frozen=True)
class Prepared:
    """A master, the stream that meets it, and what that stream asks for."""

    master: FileMaster
    unique: FileMaster
    """The same without duplicates of a key; the same one where there are none."""
    batches: tuple[pa.RecordBatch, ...]
    on: dict[str, str]
    demand: Demand | None
    """None where it is not known; then nothing is predicted."""

    @cached_property
    def view(self) -> View:
        """Some of the master's pages, on which joins are simulated."""
        return take_view(self.master)

    @property
    def schema(self) -> pa.Schema:
        """The stream's columns."""
        return self.batches[0].schema


def origin_of(data: Data, folder: Path) -> str:
    """Give what a figure must say of its data."""
    return origin(folder / FOLDER) if data.source == "weather" else ""


def prepare(data: Data, rows: int, exponent: float, scale: Scale, folder: Path) -> Prepared:
    """Make the data of a setting, or open what is there."""
    folder.mkdir(parents=True, exist_ok=True)
    makers = {"zipf": _zipf, "tpch": _tpch, "weather": _weather}
    return makers[data.source](replace(data, rows=rows, exponent=exponent), scale, folder)


def _zipf(data: Data, scale: Scale, folder: Path) -> Prepared:
    workload = Workload("1:1", data.rows, data.row_bytes)
    master = open_master(workload.prepare(folder, scale.page_bytes), "direct")
    law = Zipf(workload.keys, data.exponent, scatter=not data.sorted)
    stream = replace(workload.stream(data.exponent), zipf=law, row_bytes=data.stream_bytes)
    batches = Feed.of(stream, max(scale.feed_rows, data.rows)).batches
    demand = Demand.zipf(workload.keys, data.exponent, scattered=not data.sorted)
    return Prepared(master, master, batches, {"key": "key"}, demand)


def _tpch(data: Data, scale: Scale, folder: Path) -> Prepared:
    factor = data.rows / _PARTSUPP
    place = _generated(factor, folder)
    suppliers = place / "partsupp.parquet"
    master = _built(place / f"all-{scale.page_bytes}", _reader(suppliers), "ps_partkey", scale)
    first = _reader(suppliers, first_only="ps_partkey")
    unique = _built(place / f"unique-{scale.page_bytes}", first, "ps_partkey", scale)
    batches = tuple(_taken(_rows(place / "lineitem.parquet"), max(scale.feed_rows, data.rows)))
    demand = Demand.zipf(master.statistics.values, 0.0)
    return Prepared(master, unique, batches, {"l_partkey": "ps_partkey"}, demand)


def _taken(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Give the first batches, until there are so many rows."""
    for batch in batches:
        yield batch
        rows -= batch.num_rows
        if rows <= 0:
            return


def _generated(factor: float, folder: Path) -> Path:
    """Run the TPC-H generator, unless its tables are there."""
    place = folder / f"tpch-{factor:g}"
    if not (place / "lineitem.parquet").exists():
        draft = folder / f".tpch-{factor:g}"
        shutil.rmtree(draft, ignore_errors=True)
        call = [_generator(), "parquet", "-s", f"{factor:g}", "--tables=partsupp,lineitem"]
        subprocess.run(  # noqa: S603 - our own arguments
            [*call, f"--output-dir={draft}"], check=True, capture_output=True
        )
        draft.rename(place)
    return place


def _generator() -> str:
    beside = Path(sys.executable).with_name("tpchgen-cli")
    found = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
    if not found:
        msg = "TPC-H tables need tpchgen-cli: `make setup` installs it"
        raise OptionError(msg)
    return found


def _rows(file: Path) -> Iterator[pa.RecordBatch]:
    """Read a table's rows; views of strings, which not all of Arrow knows, as plain strings."""
    schema = _schema(file)
    for batch in pq.ParquetFile(file).iter_batches(BATCH_ROWS):
        yield batch.cast(schema)


def _schema(file: Path) -> pa.Schema:
    fields = pq.read_schema(file)
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return pa.schema([field.with_type(plain.get(field.type, field.type)) for field in fields])


def _reader(file: Path, first_only: str = "") -> pa.RecordBatchReader:
    """Give a table's rows; of those with the same key, which lie side by side, maybe the first."""
    rows = _firsts(_rows(file), first_only) if first_only else _rows(file)
    return pa.RecordBatchReader.from_batches(_schema(file), rows)


def _firsts(batches: Iterator[pa.RecordBatch], key: str) -> Iterator[pa.RecordBatch]:
    last = None
    for batch in batches:
        keys = batch[key].to_numpy()
        before = keys[0] - 1 if last is None else last
        last = keys[-1]
        yield batch.filter(pa.array(np.diff(keys, prepend=before) != 0))


def _built(
    path: Path, source: pa.Table | pa.RecordBatchReader, key: str, scale: Scale
) -> FileMaster:
    if not (path / "manifest.json").exists():
        build_master(source, path, key=key, page_bytes=scale.page_bytes, filter=False)
    return open_master(path, "direct")


def _weather(data: Data, scale: Scale, folder: Path) -> Prepared:
    real = folder / FOLDER
    make, name = stand_in, "stand-in"
    if real.is_dir():
        make, name = partial(read_reports, real), f"{FOLDER}-{_digest(real)}"
    found = make(data.rows, scale.feed_rows)
    whole, first, stream = found.tables(data.row_bytes, data.stream_bytes)
    masters = [
        _built(folder / f"{name}-{data.rows}-{kind}-{scale.page_bytes}", table, "longitude", scale)
        for kind, table in (("all", whole), ("unique", first))
    ]
    batches = tuple(stream.to_batches(BATCH_ROWS))
    on = {"longitude": "longitude"}
    return Prepared(masters[0], masters[1], batches, on, None)


def _digest(folder: Path) -> str:
    """Tell files from others: masters that were made of those are not taken for these."""
    told = sorted((path.name, path.stat().st_size) for path in folder.iterdir())
    return sha256(repr(told).encode()).hexdigest()[:12]
