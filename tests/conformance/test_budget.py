"""Memory is a promise: what is counted is kept, and what is held is counted."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import semistream as ss
from semistream import testing
from semistream.arrow import columns
from semistream.arrow.memory import concat
from semistream.errors import BudgetError, OptionError
from semistream.workloads import Stream, Zipf, master_table
from support.growth import growth
from support.matrix import ALL
from support.variants import VARIANTS, each_variant

CONSTANT = 6 << 20
"""What a process may grow by beyond the budget: caches of the interpreter and of malloc."""


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    source = master_table(300_000, row_bytes=120)
    return ss.build_master(source, tmp_path_factory.mktemp("m"), key="key", page_bytes="32KB")


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """Masters of about 30 MB: rows of 1 KB, and rows of texts, some of them null."""
    rows = 150_000
    texts = [None if i % 7 == 0 else f"{i}" * (i % 50) for i in range(rows)]
    flags = pa.array([i % 3 == 0 for i in range(rows)])
    numbers = pa.array([i if i % 5 else None for i in range(rows)], pa.int32())
    columns = {"key": range(rows), "flag": flags, "text": texts, "n": numbers}
    tables = {"wide": master_table(30_000, 1024), "texts": pa.table(columns)}
    make = tmp_path_factory.mktemp
    return {
        name: ss.build_master(table, make(name), key="key", page_bytes="32KB")
        for name, table in tables.items()
    }


@pytest.mark.parametrize(
    ("name", "read", "text", "options"),
    [
        ("wide", "mapped", "fixed", {}),
        ("wide", "mapped", "text", {"at_once": False}),
        ("wide", "direct", "fixed", {}),
        ("texts", "mapped", "text", {}),
        ("texts", "direct", "text", {}),
        ("texts", "mapped", "coded", {}),
    ],
)
def test_growth_with_adaptive_and_other_rows(others, name, read, text, options):
    budget = 6 << 20
    found = growth(others[name], read, "adaptive", options, text, budget)
    assert found["counted"] <= budget
    assert found["grown"] <= budget + CONSTANT, found


def ways():
    """The default in both ways, every other algorithm in one; ``pytest --all`` takes all."""
    both = [("mapped", "fixed"), ("direct", "text")]
    for number, (algorithm, options) in enumerate(VARIANTS.values()):
        all_of_them = algorithm == "adaptive" or ALL
        for read, text in both if all_of_them else [both[number % 2]]:
            yield algorithm, options, read, text


@pytest.mark.parametrize(("algorithm", "options", "read", "text"), list(ways()))
def test_the_process_grows_by_no_more_than_the_budget(large, algorithm, options, read, text):
    budget = 6 << 20
    found = growth(large, read, algorithm, options, text, budget)
    assert found["counted"] <= budget
    assert found["grown"] <= budget + CONSTANT, found
    # Nor is the budget kept by not using it.
    at_once = algorithm == "adaptive" and read == "mapped" and not options  # no row waits
    assert algorithm == "inlj" or at_once or found["counted"] >= budget / 3, found


@each_variant
def test_256_kb_are_enough_for_8_kb_pages_and_100_b_rows(tmp_path, algorithm, options):
    master = ss.build_master(master_table(100_000, 100), tmp_path, key="key", page_bytes="8KB")
    stream = Stream(Zipf(100_000), row_bytes=20)
    join = ss.Join(
        master, stream.schema, on="key", how="left", memory="256KB", algorithm=algorithm, **options
    )
    rows = {"inlj": 3_000, "derakhshan": 8_000}.get(algorithm, 20_000)
    for batch in stream.batches(rows, batch_rows=4096):
        for _ in join.offer(batch):
            assert join.memory_used.total <= 256 * 1024
    assert sum(join.plan.components.values()) <= 256 * 1024


LIMIT = 8_000
"""Bytes of text that one Arrow array is let have here."""


@pytest.fixture
def short_offsets(monkeypatch):
    """Let the offsets of texts end soon, as Arrow's do at 2 GB; give the sizes of arrays made."""
    made = []

    def joined(arrays):
        array = concat(arrays)
        if array.type in {pa.string(), pa.large_string()}:
            made.append(pc.sum(pc.binary_length(array)).as_py() or 0)
        return array

    monkeypatch.setattr(columns, "_MOST_VARYING", LIMIT)
    monkeypatch.setattr(columns, "concat", joined)
    return made


@pytest.mark.parametrize("algorithm", ss.algorithms())
def test_texts_stay_within_what_one_array_holds(algorithm, short_offsets, tmp_path):
    case = replace(testing.case("variable_width"), memory=160 * 1024, resident=False)
    options = {"at_once": False} if algorithm == "adaptive" else {}
    testing.check_answers(algorithm, case, "left", tmp_path, **options)
    assert LIMIT / 4 < max(short_offsets) <= LIMIT


def test_plans_give_no_memory_to_texts_that_cannot_be_held(short_offsets, tmp_path):
    case = replace(testing.case("variable_width"), memory=160 * 1024)
    for algorithm in ("cachejoin", "derakhshan", "partition-join"):
        plan = testing.start(algorithm, case, "left", tmp_path).join.plan
        assert plan.components["cache"] == 2 * LIMIT
        assert sum(plan.components.values()) == plan.memory
    for algorithm in ("adaptive", "moij", "ssbj"):
        plan = testing.start(algorithm, case, "left", tmp_path).join.plan
        divided = plan.components["window"] - plan.settings["least_window"]
        assert divided + plan.components["cache"] <= 3 * LIMIT
    assert plan.settings["window_rows"] <= LIMIT / 64  # two texts, each taken to have 32 bytes


@pytest.mark.parametrize("read", ["mapped", "direct"])
def test_memory_that_no_machine_has_is_refused(read, tmp_path):
    ss.build_master(pa.table({"id": [1, 2]}), tmp_path, key="id")
    master = ss.open_master(tmp_path, read)
    with pytest.raises(BudgetError, match=r"the operating system does not give .* ask for less"):
        ss.Join(master, pa.schema([("id", pa.int64())]), on="id", memory="99999TB")
    with pytest.raises(OptionError, match=r"memory='9+…' is not a size"):
        ss.Join(master, pa.schema([("id", pa.int64())]), on="id", memory="9" * 400)


# -- the least ------------------------------------------------------------------------------------

SHAPES = {
    "numbers": {"k": np.arange(900) * 2, "v": np.arange(900)},
    "texts": {"k": [f"key {i}" for i in range(900)], "v": ["x" * (i % 60) for i in range(900)]},
    "nested": {"k": np.arange(900) // 3, "v": [{"a": i, "b": [i]} for i in range(900)]},
}


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapes")
    for name, table in SHAPES.items():
        ss.build_master(pa.table(table), folder / name, key="k", page_bytes="4KB")
    return folder


@pytest.mark.parametrize("read", ["mapped", "direct"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("algorithm", ss.algorithms())
def test_the_least_that_is_named_works_and_a_byte_less_does_not(shapes, algorithm, shape, read):
    master = ss.open_master(shapes / shape, read)
    batch = pa.record_batch({"k": pa.array(SHAPES[shape]["k"][:50]), "n": range(50)})
    wish = {"on": "k", "how": "inner", "algorithm": algorithm}
    least = {_least(master, batch, memory=memory, **wish) for memory in (1, 7, 1000)}
    assert len(least) == 1
    [memory] = least
    assert _least(master, batch, memory=memory - 1, **wish) == memory
    for more in range(1, 200, 3):
        ss.Join(master, batch.schema, memory=memory + more, **wish).close()
    with ss.Join(master, batch.schema, memory=memory, **wish) as join:
        found = [*join.offer(batch), *join.drain()]
    assert sum(out.num_rows for out in found) == (150 if shape == "nested" else 50)


def _least(master, batch, **wish) -> int:
    with pytest.raises(BudgetError) as raised:
        ss.Join(master, batch.schema, **wish)
    assert f"memory={wish['memory']:,} bytes" in str(raised.value)
    assert f"the least that works is {raised.value.least:,} bytes" in str(raised.value)
    return raised.value.least


def test_a_number_that_is_likely_to_be_gigabytes_is_told(shapes):
    schema = pa.schema([("k", pa.int64())])
    with pytest.raises(BudgetError, match=r"without a unit is bytes: was memory='4GB' meant\?"):
        ss.Join(shapes / "numbers", schema, on="k", memory=4)
    with pytest.raises(BudgetError) as raised:
        ss.Join(shapes / "numbers", schema, on="k", memory="2KB")
    assert "GB" not in str(raised.value)
