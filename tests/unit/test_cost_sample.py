"""What a sample tells of a stream: skew, frequencies, absent keys, from files and from Kafka."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from semistream import build_master
from semistream.cost.sampling.frequencies import frequencies
from semistream.cost.sampling.sample import Sample, sample_source, sample_stream
from semistream.cost.sampling.sources import read_stream
from semistream.cost.sampling.topic import read_topic
from semistream.cost.sampling.zipf_fit import fit_zipf
from semistream.errors import OptionError, SchemaError
from semistream.workloads import Stream, Zipf, master_table

if TYPE_CHECKING:
    from pathlib import Path

    from semistream.master import Master

KEYS = 100_000


def counted(values: int, exponent: float, rows: int, seed: int = 1) -> np.ndarray:
    ranks = Zipf(values, exponent, scatter=False).ranks(rows, np.random.default_rng(seed))
    return np.unique(ranks, return_counts=True)[1]


def drawn(shares: np.ndarray, rows: int) -> np.ndarray:
    counts = np.random.default_rng(1).multinomial(rows, shares / shares.sum())
    return counts[counts > 0]


@pytest.mark.parametrize("values", [10_000, 2_000_000])
@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.2])
@pytest.mark.parametrize("rows", [10_000, 100_000, 1_000_000])
def test_the_exponent_is_found(values: int, exponent: float, rows: int) -> None:
    fit = fit_zipf(counted(values, exponent, rows), values)
    assert fit.exponent == pytest.approx(exponent, abs=0.1 if rows == 10_000 else 0.05)
    assert fit.holds
    assert abs(fit.exponent - exponent) <= 4 * fit.error


def test_ranks_by_chance_make_no_skew() -> None:
    fits = [fit_zipf(counted(50_000, 0.0, 50_000, seed), 50_000) for seed in range(10)]
    assert np.mean([fit.exponent for fit in fits]) < 0.03


def test_few_rows_of_many_keys_say_how_little_they_tell() -> None:
    assert fit_zipf(counted(2_000_000, 0.25, 3_000), 2_000_000).error > 0.1


@pytest.mark.parametrize("counts", [[1], [5_000], [1, 1, 1], [3] * 10])
def test_a_handful_of_rows_has_some_fit(counts: list[int]) -> None:
    fit = fit_zipf(np.array(counts), 10)
    assert 0 <= fit.exponent <= 4
    assert 0 <= fit.misfit <= 1
    size, share = frequencies(np.array(counts), 10, fit.exponent)
    assert size.sum() == pytest.approx(10)
    assert size @ share == pytest.approx(1)


def test_more_keys_than_there_are_is_an_error() -> None:
    with pytest.raises(OptionError, match="11 keys were seen, of 10"):
        fit_zipf(np.ones(11, np.int64), 10)


RANK = np.arange(1, 20_001)
OTHERS = {
    "nine rows in ten for a tenth of the keys": np.where(RANK <= 2_000, 9 / 2_000, 1 / 18_000),
    "geometric": 0.9995**RANK,
    "one hot key": np.where(RANK == 1, 6_000.0, 1.0),
    "a tenth of the keys": np.where(RANK <= 2_000, 1.0, 0.0),
    "half of the keys, skewed": np.where(RANK <= 10_000, RANK**-0.8, 0.0),
    "log-normal": np.sort(np.random.default_rng(0).lognormal(size=20_000))[::-1],
    "flat head": (RANK + 50.0) ** -1.2,
}


@pytest.mark.parametrize("law", OTHERS)
def test_another_law_is_refused_and_its_frequencies_are_found(law: str) -> None:
    shares = OTHERS[law] / OTHERS[law].sum()
    counts = drawn(shares, 100_000)
    fit = fit_zipf(counts, 20_000)
    assert not fit.holds
    size, share = frequencies(counts, 20_000, fit.exponent)
    assert np.all(np.diff(share) <= 0)
    hottest = np.array([1, 10, 100, 1_000, 3_000, 10_000])
    found = np.interp(hottest, np.cumsum(size), np.cumsum(size * share))
    assert found == pytest.approx(np.cumsum(shares)[hottest - 1], abs=0.03)


def built(folder: Path, *, stride: int = 1, with_filter: bool = True, keys: int = KEYS) -> Master:
    table = master_table(keys, stride=stride)
    return build_master(table, folder / "master", key="key", page_bytes=4096, filter=with_filter)


def sampled(master: Master, stream: Stream, rows: int = 100_000) -> Sample:
    return sample_stream(stream.batches(rows), master, "key")


@pytest.mark.parametrize("with_filter", [True, False])
@pytest.mark.parametrize("stride", [1, 2])
def test_the_share_of_absent_keys(tmp_path: Path, with_filter: bool, stride: int) -> None:
    master = built(tmp_path, stride=stride, with_filter=with_filter)
    assert master.pages > 256
    stream = Stream(Zipf(KEYS, 0.8), seed=3, absent=0.3, stride=stride)
    sample = sampled(master, stream)
    assert sample.absent == pytest.approx(0.3, abs=0.01)
    assert sample.fit is not None
    assert sample.fit.exponent == pytest.approx(0.8, abs=0.03)
    assert sample.law == "zipf"
    assert 0.2 < sample.certain < 1


def test_a_hot_absent_key_is_not_missed(tmp_path: Path) -> None:
    master = built(tmp_path, stride=2, with_filter=False)
    keys = Zipf(KEYS, 0.5).sample(50_000, np.random.default_rng(1)) * 2
    keys[::4] = 77_777
    sample = sample_stream([pa.record_batch({"key": keys})], master, "key")
    assert sample.absent == pytest.approx(0.25, abs=1e-9)


def test_null_keys_are_counted_apart(tmp_path: Path) -> None:
    master = built(tmp_path, keys=1_000)
    batch = pa.record_batch({"id": pa.array([1, None, 1, 2_000, None], pa.uint64())})
    sample = sample_stream([batch], master, {"id": "key"})
    assert (sample.rows, sample.nulls, sample.keys) == (5, 2, 2)
    assert sample.absent == pytest.approx(1 / 3)
    assert sample.repeats == 1.5
    assert sample.counts.tolist() == [2]


def test_string_keys_and_several_rows_a_key(tmp_path: Path) -> None:
    table = master_table(20_000, duplicates=3, strings=True)
    master = build_master(table, tmp_path / "master", key="key", page_bytes=4096)
    sample = sampled(master, Stream(Zipf(20_000, 1.0), seed=2, absent=0.1, strings=True))
    assert sample.absent == pytest.approx(0.1, abs=0.01)
    assert sample.matches == 3
    assert sample.row_bytes == pytest.approx(8 + 4 + 4 + 9.5 + 1, abs=1)
    assert sample.columns == 3
    assert sample.fit is not None
    assert sample.fit.exponent == pytest.approx(1.0, abs=0.03)


def test_matches_are_weighted_by_rows_where_keys_differ(tmp_path: Path) -> None:
    ids = np.repeat(np.arange(50_000), np.arange(50_000) % 5 + 1)
    rows = pa.table({"id": ids, "name": [f"product {number:020}" for number in ids.tolist()]})
    master = build_master(rows, tmp_path / "master", key="id", page_bytes=4096)
    keys = np.random.default_rng(1).integers(0, 50_000, 100_000)
    sample = sample_stream([pa.record_batch({"id": keys})], master, "id")
    assert master.pages > 256
    assert sample.certain < 1
    assert sample.matches == pytest.approx(3, abs=0.15)
    assert sample.demand(master).matches == sample.matches
    assert sample.columns == 1


def test_a_value_larger_than_a_page_counts_in_all_its_parts(tmp_path: Path) -> None:
    rows = pa.table({"id": [1] * 5_000 + [2], "number": range(5_001)})
    master = build_master(rows, tmp_path / "master", key="id", page_bytes=4096)
    assert master.statistics.parts > master.pages
    sample = sample_stream([pa.record_batch({"id": [1, 2, 3]})], master, "id")
    assert sample.matches == 2500.5


def test_no_more_rows_are_taken_than_wanted(tmp_path: Path) -> None:
    master = built(tmp_path, keys=1_000)
    endless = Stream(Zipf(1_000, 1.0), seed=1).batches(None, batch_rows=1_000)
    sample = sample_stream(endless, master, "key", rows=2_500)
    assert sample.rows == 2_500
    assert next(endless)["sale"][0].as_py() == 3_000
    with pytest.raises(OptionError, match="rows=0 is not possible"):
        sample_stream(endless, master, "key", rows=0)


def test_a_stream_or_a_master_without_rows_is_told(tmp_path: Path) -> None:
    schema = pa.schema([("key", pa.int64())])
    empty = build_master(schema.empty_table(), tmp_path / "master", key="key")
    sample = sample_stream([pa.record_batch({"key": [1, 2]})], empty, "key")
    assert (sample.absent, sample.matches, sample.fit) == (1, 1, None)
    nothing = sample_stream([], built(tmp_path / "other", keys=100), "key")
    assert (nothing.rows, nothing.absent, nothing.row_bytes, nothing.fit) == (0, 0, 0, None)


def test_the_demand_of_a_zipf_stream_has_its_hot_keys_on_their_pages(tmp_path: Path) -> None:
    master = built(tmp_path, stride=2)
    zipf = Zipf(KEYS, 1.0)
    sample = sampled(master, Stream(zipf, seed=1, absent=0.2, stride=2), 200_000)
    demand = sample.demand(master)
    assert sample.law == "zipf"
    assert demand.absent == pytest.approx(0.2, abs=0.01)
    assert demand.values == KEYS
    assert demand.hit(1_000) == pytest.approx(zipf.probability(RANK[:1_000]).sum(), abs=0.02)
    ten = zipf.key_of(RANK[:10]) * 2
    assert demand.page[:10].tolist() == master.page_of(ten).tolist()


def test_the_demand_of_another_stream_has_the_frequencies_that_were_counted(tmp_path: Path) -> None:
    master = built(tmp_path)
    rng = np.random.default_rng(1)
    hot = rng.random(100_000) < 0.9
    keys = np.where(hot, rng.integers(0, 500, 100_000), rng.integers(0, KEYS, 100_000))
    sample = sample_stream([pa.record_batch({"key": keys})], master, "key")
    demand = sample.demand(master)
    assert sample.law == "counted"
    assert "as counted" in sample.describe()
    assert demand.hit(500) == pytest.approx(0.9, abs=0.02)
    assert demand.hit(KEYS) == pytest.approx(1)
    assert demand.values == pytest.approx(KEYS)
    shares = demand.page_shares()
    assert shares.sum() == pytest.approx(1)
    first = shares[: master.page_of(np.array([500]))[0]].sum()  # the hot keys lie side by side
    assert first == pytest.approx(0.9, abs=0.05)


def test_a_stream_without_a_match_has_no_demand(tmp_path: Path) -> None:
    master = built(tmp_path, keys=1_000)
    sample = sample_stream([pa.record_batch({"key": [5_000, None]})], master, "key")
    assert (sample.absent, sample.fit) == (1, None)
    assert "no row has a match" in sample.describe()
    with pytest.raises(OptionError, match=r"none of 2 sampled rows has a match .*\(1 have a null"):
        sample.demand(master)
    with pytest.raises(OptionError, match="another master"):
        sample.demand(built(tmp_path / "other", keys=2_000))


FILES = [
    "sales.parquet",
    "sales.csv",
    "sales.csv.gz",
    "sales.jsonl",
    "sales.json.gz",
    "sales.arrow",
    "sales.ipc",
]


def written(path: Path, table: pa.Table) -> Path:
    """Write a table as the name says; ``.ipc`` is a stream, without batches at known places."""
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path, row_group_size=500)
    elif ".csv" in path.suffixes:
        with pa.output_stream(path) as out:
            pyarrow.csv.write_csv(table, out)
    elif ".json" in path.name:
        with pa.output_stream(path) as out:
            out.write("".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode())
    else:
        new = pa.ipc.new_file if path.suffix == ".arrow" else pa.ipc.new_stream
        with new(path, table.schema) as out:
            out.write_table(table, max_chunksize=500)
    return path


def sales(rows: int) -> pa.Table:
    numbers = np.arange(rows)
    keys = [None if n % 10 == 0 else f"{n % 30:03}" for n in numbers]
    return pa.table({"product": pa.array(keys, pa.string()), "sale": numbers})


@pytest.fixture
def products(tmp_path: Path) -> Master:
    """Keys that look like numbers, 000 to 019."""
    table = pa.table({"id": [f"{number:03}" for number in range(20)]})
    return build_master(table, tmp_path / "master", key="id")


@pytest.mark.parametrize("name", FILES)
def test_files_of_each_kind(tmp_path: Path, products: Master, name: str) -> None:
    path = written(tmp_path / name, sales(3_000))
    sample = sample_source(path, products, {"product": "id"})
    assert (sample.rows, sample.nulls, sample.keys) == (3_000, 300, 27)
    assert sample.counts.tolist() == [100] * 18
    assert sample.absent == pytest.approx(1 / 3)
    assert sample.row_bytes == pytest.approx(4 + 8 + 1 + 2.7, abs=0.1)


def test_a_folder_is_read_from_all_over(tmp_path: Path, products: Master) -> None:
    for number in range(5):
        path = tmp_path / "sales" / f"day={number}" / "part.parquet"
        path.parent.mkdir(parents=True)
        written(path, sales(10_000))
    (tmp_path / "sales" / "_SUCCESS").touch()
    sample = sample_source(tmp_path / "sales", products, {"product": "id"}, rows=8_000)
    assert sample.rows == 8_000
    batches = [batch["sale"].to_numpy() for batch in read_stream(tmp_path / "sales", {})]
    starts = [int(batch[0]) for batch in batches]
    assert len(starts) == 100
    assert len(set(starts[:16])) > 8
    assert sorted(starts) == sorted([*range(0, 10_000, 500)] * 5)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("sales.xlsx", "", "cannot be sampled; give a file or folder of Parquet .* kafka://host"),
        ("sales.parquet", "no Parquet", "cannot be read"),
        ("sales.arrow", "no Arrow here", "cannot be read"),
        ("sales.jsonl", '{"product": 7}\n', "cannot be read"),
        ("sales.csv", None, "there is no such file"),
        ("sales.parquet", None, "there is no such file"),
        ("sales.arrow", None, "there is no such file"),
    ],
)
def test_what_cannot_be_read(
    tmp_path: Path, products: Master, name: str, content: str | None, message: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    with pytest.raises(OptionError, match=message):
        sample_source(path, products, {"product": "id"})


def test_a_folder_of_two_kinds_or_none_is_refused(tmp_path: Path, products: Master) -> None:
    folder = tmp_path / "sales"
    folder.mkdir()
    with pytest.raises(OptionError, match="cannot be sampled"):
        sample_source(folder, products, {"product": "id"})
    for name in ("sales.csv", "sales.jsonl"):
        written(folder / name, sales(10))
    with pytest.raises(OptionError, match="cannot be sampled"):
        sample_source(folder, products, {"product": "id"})


def test_a_column_that_is_missing_is_named(tmp_path: Path, products: Master) -> None:
    path = written(tmp_path / "sales.csv", sales(10))
    with pytest.raises(SchemaError, match="the stream has no column 'produkt'"):
        sample_source(path, products, {"produkt": "id"})


def test_a_broker_that_is_not_there_is_named_within_the_timeout() -> None:
    pytest.importorskip("confluent_kafka")
    with pytest.raises(OptionError, match="no broker for topic 'sales' within"):
        next(read_topic("kafka://127.0.0.1:9/sales", {}, timeout=0.3))
