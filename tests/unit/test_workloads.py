"""The workloads are what they say: distributions, widths, totals, and the same each time."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from semistream.errors import OptionError
from semistream.workloads import Stream, Zipf, key_strings, master_rows, master_table

DRAWS = 400_000


def table(stream: Stream, rows: int, batch_rows: int = 65_536) -> pa.Table:
    return pa.Table.from_batches(stream.batches(rows, batch_rows), stream.schema)


def keys_of(batches) -> np.ndarray:
    return np.concatenate([batch["key"].to_numpy() for batch in batches])


def chi_square_excess(observed: np.ndarray, expected: np.ndarray) -> float:
    """How many standard deviations chi-square lies above its mean."""
    freedom = max(len(observed) - 1, 1)
    chi = ((observed - expected) ** 2 / expected).sum()
    return float((chi - freedom) / np.sqrt(2 * freedom))


@pytest.mark.parametrize("keys", [1, 2, 3, 50, 10**6, 10**9])
@pytest.mark.parametrize("exponent", [0, 0.5, 1 - 1e-7, 1, 1 + 1e-9, 1.002, 1.5, 4.0])
def test_draws_follow_the_probabilities(keys, exponent):
    zipf = Zipf(keys, exponent, scatter=False)
    ranks = zipf.ranks(DRAWS, np.random.default_rng(7))
    assert ranks.min() >= 1
    assert ranks.max() <= keys
    # Single ranks at the head, then spans that double: each is tested where it has the draws.
    edges = np.unique(np.minimum([*range(1, 21), *(20 * 2 ** np.arange(1, 27) + 1)], keys + 1))
    edges = np.unique([*edges, keys + 1])
    expected = DRAWS * np.array([mass(zipf, a, b) for a, b in itertools.pairwise(edges)])
    observed = np.histogram(ranks, edges)[0]
    enough = expected >= 10
    assert chi_square_excess(observed[enough], expected[enough]) < 5
    assert observed[~enough].sum() <= expected[~enough].sum() + 30


def mass(zipf: Zipf, first: int, end: int) -> float:
    """The probability of the ranks first..end-1; long spans by the midpoint rule."""
    if end - first <= 20_000:
        return float(zipf.probability(np.arange(first, end)).sum())
    cuts = np.unique(np.linspace(first, end, 20_001).astype(np.int64))
    middles = (cuts[:-1] + cuts[1:] - 1) // 2
    return float((zipf.probability(middles) * np.diff(cuts)).sum())


@pytest.mark.parametrize("exponent", [0, 0.5, 1 - 1e-9, 1, 1.5, 3])
@pytest.mark.parametrize("keys", [1, 9, 10_000, 10_001, 2_000_000])
def test_probabilities_add_up_to_one(keys, exponent):
    zipf = Zipf(keys, exponent)
    assert zipf.probability(np.arange(1, keys + 1)).sum() == pytest.approx(1, abs=1e-12)
    assert zipf.probability(1) == zipf.probability([1])[0]


@pytest.mark.parametrize("keys", [1, 2, 3, 7, 8, 9, 1000, 2**20, 2**20 + 1])
@pytest.mark.parametrize("scatter", [True, False])
def test_each_rank_has_a_key_of_its_own(keys, scatter):
    mapped = Zipf(keys, scatter=scatter).key_of(np.arange(1, keys + 1))
    assert mapped.dtype == np.int64
    assert (np.sort(mapped) == np.arange(keys)).all()
    assert scatter or (mapped == np.arange(keys)).all()


def test_key_of_keeps_the_shape():
    ranks = np.arange(1, 13).reshape(3, 4)
    assert Zipf(12).key_of(ranks).shape == (3, 4)
    assert Zipf(12).key_of(5) == Zipf(12).key_of([5])[0]


@pytest.mark.parametrize("keys", [2**20, 2_000_000, 10**9])
def test_hot_keys_are_spread_over_all_pages(keys):
    pages = Zipf(keys).key_of(np.arange(1, 5001)) * 100 // keys
    observed = np.bincount(pages, minlength=100)
    assert abs(chi_square_excess(observed, np.full(100, 50.0))) < 5


def test_samples_are_reproducible_and_can_be_drawn_in_parts():
    zipf = Zipf(1000, 1.2)
    whole = zipf.sample(1000, np.random.default_rng(3))
    rng = np.random.default_rng(3)
    parts = [zipf.sample(n, rng) for n in (1, 0, 600, 399)]
    assert (whole == np.concatenate(parts)).all()
    assert (whole != zipf.sample(1000, np.random.default_rng(4))).any()


@pytest.mark.parametrize("batch_rows", [1, 77, 1000, 65_536])
def test_stream_does_not_depend_on_the_batch_size(batch_rows):
    stream = Stream(Zipf(500), seed=5, row_bytes=33, absent=0.2, drift_at=450)
    assert table(stream, 1000, batch_rows).equals(table(stream, 1000, 256))


def test_stream_rows_are_numbered_and_a_prefix_is_a_prefix():
    stream = Stream(Zipf(500), seed=5)
    assert table(stream, 5000, 999)["sale"].to_pylist() == list(range(5000))
    assert table(stream, 300).equals(table(stream, 5000).slice(0, 300))
    assert not table(stream, 300).equals(table(Stream(Zipf(500), seed=6), 300))


def test_endless_stream_goes_on():
    stream = Stream(Zipf(500))
    first = list(itertools.islice(stream.batches(None, batch_rows=100), 12))
    assert pa.Table.from_batches(first).equals(table(stream, 1200))


@pytest.mark.parametrize("row_bytes", [8, 9, 15, 16, 19, 20, 21, 64, 120])
def test_stream_rows_have_their_width(row_bytes):
    stream = Stream(Zipf(10), row_bytes=row_bytes)
    assert sum(kind.bit_width for kind in stream.schema.types) == 8 * row_bytes
    batch = next(stream.batches(100))
    assert batch.schema == stream.schema
    assert batch.nbytes == 100 * row_bytes
    batch.validate(full=True)


@pytest.mark.parametrize("row_bytes", [16, 17, 20, 24, 27, 28, 31, 32, 33, 120, 4096])
def test_master_rows_have_their_width(row_bytes):
    batch = master_table(100, row_bytes=row_bytes).read_next_batch()
    assert sum(kind.bit_width for kind in batch.schema.types) == 8 * row_bytes
    assert batch.nbytes == 100 * row_bytes
    batch.validate(full=True)
    names = ["key", "surrogate", "price", "vendor", "category", "description"]
    assert batch.schema.names[:-1] == names[: len(batch.schema) - 1]


@pytest.mark.parametrize("scatter", [True, False])
def test_drift_makes_other_keys_hot(scatter):
    stream = Stream(Zipf(1000, scatter=scatter), drift_at=20_000)
    keys = table(stream, 40_000)["key"].to_numpy()
    before, after = (set(np.bincount(half).argsort()[-10:]) for half in np.split(keys, 2))
    assert not before & after
    steady = table(Stream(Zipf(1000, scatter=scatter)), 40_000)["key"].to_numpy()
    assert (keys[:20_000] == steady[:20_000]).all()
    assert keys.max() < 1000


@pytest.mark.parametrize("absent", [0.0, 0.1, 1.0])
def test_absent_share(absent):
    keys = table(Stream(Zipf(1000), absent=absent), 100_000)["key"].to_numpy()
    assert np.mean(keys >= 1000) == pytest.approx(absent, abs=0.005)
    assert keys.min() >= 0
    assert keys.max() < 2000
    present = table(Stream(Zipf(1000)), 100_000)["key"].to_numpy()
    assert (keys % 1000 == present).all()


@pytest.mark.parametrize("stride", [2, 5])
def test_absent_keys_lie_between_master_keys(stride):
    stream = Stream(Zipf(1000), absent=0.2, stride=stride)
    keys = table(stream, 100_000)["key"].to_numpy()
    drawn = table(Stream(Zipf(1000)), 100_000)["key"].to_numpy()
    assert (keys // stride == drawn).all()
    assert set(keys % stride) == {0, 1}
    assert np.mean(keys % stride) == pytest.approx(0.2, abs=0.005)
    master = master_table(1000, stride=stride).read_all()["key"].to_numpy()
    assert master.tolist() == list(range(0, 1000 * stride, stride))
    assert (np.isin(keys, master) == (keys % stride == 0)).all()


def test_string_keys_are_the_numbers_written_out():
    stream = Stream(Zipf(1000), strings=True, stride=2, absent=0.1)
    numbers = Stream(Zipf(1000), stride=2, absent=0.1)
    assert next(stream.batches(100)).schema == stream.schema
    written = key_strings(table(numbers, 5000)["key"].to_numpy())
    assert table(stream, 5000)["key"].combine_chunks().equals(written)
    master = master_table(1000, stride=2, strings=True).read_all()
    plain = master_table(1000, stride=2).read_all()
    assert master["key"].to_pylist() == [f"item-{key}" for key in range(0, 2000, 2)]
    assert master.drop_columns("key").equals(plain.drop_columns("key"))


@pytest.mark.parametrize("row_bytes", [17, 23, 33, 120, 1024])
def test_variable_rows_have_their_width_in_the_mean(row_bytes):
    master = master_table(5000, row_bytes=row_bytes, variable=True, duplicates=2).read_all()
    fixed = master_table(5000, row_bytes=row_bytes, duplicates=2).read_all()
    master.validate(full=True)
    texts = master["description"].combine_chunks()
    width = fixed["description"].type.byte_width
    lengths = np.diff(np.frombuffer(texts.buffers()[1], np.int32)[: len(texts) + 1])
    assert (lengths.min(), lengths.max()) == (0, 2 * width)
    assert lengths.mean() == pytest.approx(width, rel=0.03)
    assert master.drop_columns("description").equals(fixed.drop_columns("description"))
    again = master_rows([7], 1, row_bytes, variable=True)
    assert again.to_pylist() == master.slice(15, 1).to_pylist()


def test_master_is_the_rows_of_its_keys():
    master = master_table(1000, row_bytes=61, duplicates=3, seed=9).read_all()
    key, number = np.divmod(np.arange(3000), 3)
    assert master["key"].to_pylist() == key.tolist()
    assert master.equals(pa.Table.from_batches([master_rows(key, number, 61, seed=9)]))
    some = master_rows([17, 400], 2, row_bytes=61, seed=9)
    assert master.take([17 * 3 + 2, 400 * 3 + 2]).equals(pa.Table.from_batches([some]))
    assert master_rows(17, [0, 1, 2], 61, seed=9).to_pylist() == master.slice(51, 3).to_pylist()


def test_master_rows_differ():
    master = master_table(1000, duplicates=3).read_all()
    for name in ("surrogate", "description"):
        assert len(master[name].unique()) == 3000
    other = master_table(1000, duplicates=3, seed=1).read_all()
    assert not any(master[name].equals(other[name]) for name in master.column_names[1:])


def test_wider_rows_keep_their_columns():
    names = ["key", "surrogate", "price"]
    narrow, wide = (master_table(50, row_bytes=n).read_all() for n in (24, 500))
    assert narrow.select(names).equals(wide.select(names))


def test_master_is_made_a_batch_at_a_time():
    tracemalloc.start()
    reader = master_table(10**9, row_bytes=4096)
    firsts = [reader.read_next_batch() for _ in range(3)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert keys_of(firsts).tolist() == list(range(sum(map(len, firsts))))
    assert all(batch.nbytes <= 8 << 20 for batch in firsts)
    assert peak < 64 << 20


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Zipf(0), "keys=0"),
        (lambda: Zipf(1e6), "keys=1000000.0"),
        (lambda: Zipf("many"), "keys='many'"),
        (lambda: Zipf(2**41), "keys=2199023255552"),
        (lambda: Zipf(10, -0.1), "exponent=-0.1"),
        (lambda: Zipf(10, float("nan")), "exponent=nan"),
        (lambda: Zipf(10).sample(-1, np.random.default_rng()), "n=-1"),
        (lambda: Zipf(10).key_of([1, 0]), "rank=0"),
        (lambda: Zipf(10).probability([1, 11]), "rank=11"),
        (lambda: Stream(Zipf(10), row_bytes=7), "row_bytes=7"),
        (lambda: Stream(Zipf(10), absent=5), "absent=5"),
        (lambda: Stream(Zipf(10), drift_at=-1), "drift_at=-1"),
        (lambda: Stream(Zipf(10), seed=-1), "seed=-1"),
        (lambda: Stream(Zipf(10)).batches(-1), "rows=-1"),
        (lambda: Stream(Zipf(10)).batches(1, batch_rows=0), "batch_rows=0"),
        (lambda: master_table(0), "keys=0"),
        (lambda: master_table(10, row_bytes=15), "row_bytes=15"),
        (lambda: master_table(10, duplicates=0), "duplicates=0"),
        (lambda: master_table(10, seed=0.5), "seed=0.5"),
        (lambda: master_table(10, stride=0), "stride=0"),
        (lambda: Stream(Zipf(2**40), stride=2), "stride=2"),
    ],
)
def test_illegal_values_are_named_with_the_legal_ones(make, named):
    with pytest.raises(OptionError, match=r"; it must be a.* from .* to .*: ") as error:
        make()
    assert isinstance(error.value, ValueError)
    assert str(error.value).startswith(named + " ")
