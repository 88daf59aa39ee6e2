"""What a user says to a join, and what it answers."""

import datetime

import pyarrow as pa
import pytest

import semistream as ss
from semistream.errors import (
    BudgetError,
    JoinFailedError,
    OptionError,
    RowTooLargeError,
    SchemaError,
    UnreadOutputError,
)

SALES = pa.schema([("sale", pa.int64()), ("product", pa.int32())])


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    rows = 5000
    table = pa.table(
        {
            "id": range(rows),
            "name": [f"product {i}" for i in range(rows)],
            "sale": [i * 0.5 for i in range(rows)],
        }
    )
    return ss.build_master(table, tmp_path_factory.mktemp("m"), key="id", page_bytes="4KB")


def sales(*keys):
    return pa.record_batch([pa.array(range(len(keys))), pa.array(keys, pa.int32())], schema=SALES)


def make(master, **options):
    wanted = {"on": {"product": "id"}, "select": ["name"], "memory": "64KB"}
    return ss.Join(master, SALES, **(wanted | options))


def rows_of(*results):
    return [row for result in results for batch in result for row in batch.to_pylist()]


def test_output_is_the_streams_columns_then_the_masters_without_key(master):
    join = make(master, select=None, prefix="m_", how="left")
    assert join.schema.names == ["sale", "product", "m_name", "m_sale"]
    found = rows_of(join.offer(sales(3, None)), join.drain())
    assert sorted(found, key=lambda r: r["sale"]) == [
        {"sale": 0, "product": 3, "m_name": "product 3", "m_sale": 1.5},
        {"sale": 1, "product": None, "m_name": None, "m_sale": None},
    ]


def test_columns_that_collide_are_refused_with_both_ways_out(master):
    with pytest.raises(SchemaError, match=r"\['sale'\].*select=.*prefix="):
        make(master, select=None)


@pytest.mark.parametrize("how", ["left_outer", "leftouter", "LEFT", "left"])
def test_sparks_synonyms(master, how):
    assert len(rows_of((join := make(master, how=how)).offer(sales(9999)), join.drain())) == 1


@pytest.mark.parametrize("how", ["right", "full", "outer", "full_outer", "rightouter", "cross"])
def test_joins_that_a_stream_cannot_have_are_explained(master, how):
    with pytest.raises(OptionError, match=r"never ends.*inner, left, semi or anti"):
        make(master, how=how)


def test_unknown_words_are_answered_with_the_choices(master):
    with pytest.raises(OptionError, match=r"how 'lift'.*Did you mean 'left'"):
        make(master, how="lift")
    with pytest.raises(OptionError, match=r"algorithm 'hybrid'.*hybridjoin"):
        make(master, algorithm="hybrid")
    with pytest.raises(OptionError, match=r"'auto' is not known.*The default is 'adaptive'"):
        make(master, algorithm="auto")
    with pytest.raises(OptionError, match=r"'k' is not an option of hybridjoin"):
        make(master, algorithm="hybridjoin", k=3)
    with pytest.raises(OptionError, match=r"memory='lots'.*'64MB'"):
        make(master, memory="lots")
    with pytest.raises(OptionError, match="max_wait=-1"):
        make(master, max_wait=-1)
    with pytest.raises(OptionError, match="max_wait=nan"):
        make(master, max_wait=float("nan"))
    with pytest.raises(OptionError, match=r"select='name'.*list"):
        make(master, select="name")
    with pytest.raises(OptionError, match="twice"):
        make(master, select=["name", "name"])
    with pytest.raises(OptionError, match="not a Table"):
        make(master).offer(pa.table({"sale": [1]}))


def test_columns_that_are_not_there_are_named(master):
    with pytest.raises(
        SchemaError, match=r"stream has no column 'produkt'.*Did you mean 'product'"
    ):
        make(master, on={"produkt": "id"})
    with pytest.raises(SchemaError, match=r"master has no column 'nam'.*Did you mean 'name'"):
        make(master, select=["nam"])
    with pytest.raises(SchemaError, match=r"does not name the master's key \['id'\]"):
        make(master, on="product")


def test_key_types_that_differ_are_refused(master):
    schema = pa.schema([("id", pa.string())])
    with pytest.raises(SchemaError, match=r"'id' is string.*int64.*cast"):
        ss.Join(master, schema, on="id")
    with pytest.raises(SchemaError, match="double cannot be a join key"):
        ss.Join(master, pa.schema([("id", pa.float64())]), on="id")


def test_a_batch_of_another_schema_is_refused(master):
    join = make(master)
    with pytest.raises(SchemaError, match="sale: int64, product: int32"):
        join.offer(pa.record_batch({"other": [1]}))


def test_too_small_a_budget_is_refused_with_the_least_that_works(master):
    with pytest.raises(BudgetError, match=r"least that works is [0-9,]+ bytes") as refused:
        make(master, memory=5000)
    least = int(str(refused.value).split("works is ")[1].split(" bytes")[0].replace(",", ""))
    assert make(master, memory=least).plan.memory == least
    with pytest.raises(BudgetError):
        make(master, memory=least - 1)


def test_an_unread_offer_is_not_lost(master):
    join = make(master, how="left")
    join.offer(sales(1, 2))
    with pytest.raises(UnreadOutputError, match="drain"):
        join.offer(sales(3))
    assert {row["product"] for row in rows_of(join.drain())} == {1, 2}
    assert {row["product"] for row in rows_of(join.offer(sales(3)), join.drain())} == {3}


def test_a_row_larger_than_the_window_is_refused_and_nothing_is_taken(tmp_path):
    table = pa.table({"id": range(3000), "x": ["y" * 50] * 3000})
    master = ss.build_master(table, tmp_path / "m", key="id", page_bytes="4KB")
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    join = ss.Join(master, schema, on="id", how="left", memory="48KB", algorithm="hybridjoin")
    batch = pa.record_batch({"id": [1, 2], "text": ["short", "long" * 50_000]}, schema=schema)
    with pytest.raises(RowTooLargeError, match="row 1 of the batch takes 195"):
        join.offer(batch)
    assert (join.metrics.rows_in, join.waiting) == (0, 0)
    assert len(rows_of(join.offer(batch.slice(0, 1)), join.drain())) == 1


@pytest.mark.parametrize("algorithm", ["hybridjoin", "meshjoin", "adaptive"])
def test_a_row_that_no_check_saw_and_no_window_holds_ends_the_join(
    algorithm, tmp_path, monkeypatch
):
    table = pa.table({"id": range(3000), "x": ["y" * 50] * 3000})
    master = ss.build_master(table, tmp_path / "m", key="id", page_bytes="4KB")
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    options = {"at_once": False} if algorithm == "adaptive" else {}
    join = ss.Join(master, schema, on="id", memory="64KB", algorithm=algorithm, **options)
    monkeypatch.setattr("semistream.engine.engine.Engine.check", lambda *_: None)
    batch = pa.record_batch({"id": [1, 2], "text": ["short", "long" * 50_000]}, schema=schema)
    with pytest.raises(RowTooLargeError, match="a row takes 195"):
        rows_of(join.offer(batch), join.drain())
    with pytest.raises(JoinFailedError, match="a row takes 195"):
        join.offer(batch)


def test_a_budget_larger_than_the_master_holds_all_of_it(master):
    join = make(master, memory="16MB", algorithm="meshjoin", how="left")
    assert join.plan.settings["resident"]
    assert {row["name"] for row in rows_of(join.offer(sales(1, 7777)))} == {"product 1", None}
    assert join.waiting == 0


def test_the_plan_is_frozen_and_printable(master):
    plan = make(master, algorithm="cachejoin").plan
    assert sum(plan.components.values()) <= plan.memory
    assert "cachejoin within 64 KB" in str(plan)
    with pytest.raises(TypeError):
        plan.components["window"] = 0


def test_max_wait_takes_a_timedelta(master):
    clock = iter(range(1000))
    join = make(
        master,
        how="left",
        max_wait=datetime.timedelta(seconds=2),
        clock=lambda: float(next(clock)),
    )
    found = rows_of(join.offer(sales(1)))
    while not found:
        found = rows_of(join.tick())
    assert found[0]["name"] == "product 1"


def test_a_join_that_failed_is_over(tmp_path):
    table = pa.table({"id": range(5000), "x": ["y" * 50] * 5000})
    broken = ss.build_master(table, tmp_path / "m", key="id", page_bytes="4KB", filter=False)
    pages = next((tmp_path / "m").glob("*.pages"))
    content = bytearray(pages.read_bytes())
    content[len(content) // 2] ^= 1
    pages.write_bytes(content)
    join = ss.Join(broken, pa.schema([("id", pa.int64())]), on="id", how="left", memory="64KB")
    with pytest.raises(ss.SemistreamError, match="is damaged"):
        rows_of(join.offer(pa.record_batch({"id": range(5000)})), join.drain())
    for call in (join.drain, join.tick, lambda: join.offer(pa.record_batch({"id": [1]}))):
        with pytest.raises(JoinFailedError, match="failed before"):
            list(call())


def test_a_dictionary_is_not_decoded_before_its_rows_are_taken(tmp_path):
    table = pa.table({"id": range(5000), "x": ["y" * 50] * 5000})
    master = ss.build_master(table, tmp_path / "m", key="id", page_bytes="4KB")
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 20_000, pa.int32()), ["z" * 4000])
    batch = pa.record_batch({"id": [i % 5000 for i in range(20_000)], "text": text})
    join = ss.Join(master, batch.schema, on="id", memory="512KB", algorithm="hybridjoin")
    before, most = pa.total_allocated_bytes(), 0
    for out in join.offer(batch):
        assert out.schema.field("text").type == text.type
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < 2 << 20  # decoded, the batch has 80 MB


def test_many_small_batches_are_answered(master):
    join = make(master, how="left", algorithm="meshjoin")
    found = [row for i in range(2000) for row in rows_of(join.offer(sales(i % 6000)))]
    found += rows_of(join.drain())
    assert sorted(row["product"] for row in found) == sorted(i % 6000 for i in range(2000))


def test_memory_used_is_a_mapping_with_a_total(master):
    join = make(master, algorithm="moij")
    list(join.offer(sales(*range(400))))
    used = join.memory_used
    assert {"window", "pages", "output", "cache"} <= set(used)
    assert used.total == sum(used.values()) <= join.plan.memory


def test_output_keeps_the_streams_metadata_and_types(tmp_path):
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("tag", pa.dictionary(pa.int8(), pa.string())),
        ],
        metadata={"origin": "till"},
    )
    table = pa.table({"id": [1], "kind": pa.array(["a"]).dictionary_encode()})
    master = ss.build_master(table, tmp_path / "m", key="id")
    join = ss.Join(master, schema, on="id", how="left", memory="1MB")
    batch = pa.record_batch(
        [pa.array([1]), pa.array(["x"], schema.field("tag").type)], schema=schema
    )
    out = [*join.offer(batch), *join.drain()][0]
    assert out.schema.metadata == {b"origin": b"till"}
    assert out.schema.types == [pa.int64(), schema.field("tag").type, table.schema.field(1).type]
