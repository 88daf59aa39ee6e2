"""Syncing masters: the result is that of a build, whatever came and went."""

from __future__ import annotations

import datetime
import json
import signal
import subprocess
import sys
import threading
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import semistream as ss
from semistream.errors import MasterError, MasterNotFoundError, OptionError, SchemaError
from semistream.master.files.filter import filter_words
from semistream.master.lake.table import Feed, Scope
from semistream.master.sync import sync as master_sync
from semistream.master.sync.merge import MisfitError, add_weight, merge, row_ids
from support.masters import PAGE, rows_of, same_as_built

if TYPE_CHECKING:
    from collections import Counter
    from pathlib import Path


NUMBERS = pa.schema([("id", pa.int64()), ("name", pa.string())])
STRINGS = pa.schema([("code", pa.string()), ("name", pa.string())])
PAIRS = pa.schema([("a", pa.int32()), ("b", pa.string()), ("name", pa.string())])


def joined(master: ss.Master, stream: pa.Table) -> list[str]:
    join = ss.Join(master, stream.schema, on=list(master.key), how="left", memory="2MB")
    out = [batch for part in stream.to_batches() for batch in join.offer(part)]
    out += join.drain()
    return sorted(repr(row) for batch in out for row in batch.to_pylist())


# Given changes


def _keys_of(schema: pa.Schema) -> list[str]:
    return schema.names[:-1]


@st.composite
def tables(draw: st.DrawFn, schema: pa.Schema, values: int, most: int, widest: int) -> pa.Table:
    keys = draw(st.lists(st.integers(0, values), max_size=most))
    sizes = draw(st.lists(st.integers(0, widest), min_size=len(keys), max_size=len(keys)))
    columns: dict[str, list[Any]] = {"id": keys, "a": keys, "name": ["n" * s for s in sizes]}
    columns["code"] = [f"key {k}" for k in keys]
    columns["b"] = [None if k == 3 else f"b{k % 5}" for k in keys]
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


@st.composite
def changed_masters(draw: st.DrawFn) -> tuple[pa.Table, list[tuple[pa.Table, pa.Table]]]:
    schema = draw(st.sampled_from([NUMBERS, STRINGS, PAIRS]))
    values, widest = draw(st.sampled_from([5, 40, 400])), draw(st.sampled_from([4, 300, 3000]))
    old = draw(tables(schema, values, 120, widest))
    new = st.tuples(tables(schema, values + 5, 20, widest), tables(schema, values, 20, 1))
    return old, draw(st.lists(new, min_size=1, max_size=3))


def _expected(old: pa.Table, upserts: pa.Table, deletes: pa.Table) -> pa.Table:
    keys = _keys_of(old.schema)
    gone = pa.concat_tables([upserts.select(keys), deletes.select(keys)])
    on = " AND ".join(f"old.{k} = gone.{k}" for k in keys)
    query = f"SELECT * FROM old WHERE NOT EXISTS (SELECT 1 FROM gone WHERE {on})"  # noqa: S608
    kept = duckdb.sql(query).to_arrow_table().cast(old.schema)
    assert gone.num_columns == len(keys)
    return pa.concat_tables([kept, upserts])


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(case=changed_masters())
def test_given_changes_are_as_a_build(tmp_path_factory, case) -> None:
    old, changes = case
    folder = tmp_path_factory.mktemp("master")
    keys = _keys_of(old.schema)
    master = ss.build_master(old, folder, key=keys, page_bytes=PAGE)
    for upserts, deletes in changes:
        before = rows_of(master)
        wanted = _expected(old, upserts, deletes)
        synced = ss.sync_master(folder, upserts=upserts, deletes=deletes.select(keys))
        master = synced.master
        same_as_built(master, wanted, tmp_path_factory.mktemp("built"))
        _changes_are_exact(synced, before, rows_of(master))
        old = wanted
    stream = old.select(keys)
    names = [*keys, "name"]
    again = ", ".join(f"s.{k}" for k in keys)
    on = " AND ".join(f"s.{k} = m.{k}" for k in keys)
    query = f"SELECT {again}, m.name FROM stream s LEFT JOIN old m ON {on}"  # noqa: S608
    expected = duckdb.sql(query).to_arrow_table().rename_columns(names)
    assert joined(master, stream) == sorted(map(repr, expected.to_pylist()))


def _changes_are_exact(synced, before: Counter[str], after: Counter[str]) -> None:
    manifest, folder = synced.master.manifest, synced.master.path
    assert synced.values == (manifest.changed if synced.values else 0)
    if not synced.values:
        assert before == after
        return
    codes = manifest.changes(folder)
    assert (codes[1:] > codes[:-1]).all()
    differ = (before - after) | (after - before)
    assert sorted({eval(row)["__code"] for row in differ}) == codes.tolist()  # noqa: S307


@st.composite
def changed_rows(draw: st.DrawFn) -> tuple[pa.Table, pa.Table, pa.Table, pa.Table]:
    """Give rows, those of them that go, those that come, and what is left."""
    schema = draw(st.sampled_from([NUMBERS, STRINGS, PAIRS]))
    values, widest = draw(st.sampled_from([5, 40])), draw(st.sampled_from([2, 300, 3000]))
    old = draw(tables(schema, values, 80, widest))
    new = draw(tables(schema, values + 5, 20, widest))
    goes = np.array(draw(st.lists(st.booleans(), min_size=len(old), max_size=len(old))), dtype=bool)
    went = old.filter(pa.array(goes, pa.bool_()))
    return old, went, new, pa.concat_tables([old.filter(pa.array(~goes, pa.bool_())), new])


def _apply(folder: Path, scope: Scope, changes: list[tuple[int, pa.Table]]) -> master_sync.Synced:
    parent = ss.open_master(folder)
    target = master_sync._target(parent.manifest, folder)
    sync = master_sync._Sync(parent, target, 1 << 24, lambda _: None)
    batches = [(weight, batch) for weight, table in changes for batch in table.to_batches()]
    with target.building():
        return sync.apply(
            Feed("test", scope, lambda: iter(batches)), {"kind": "test", "uri": "test"}
        )


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(case=changed_rows())
def test_rows_that_came_and_went_are_as_a_build(tmp_path_factory, case) -> None:
    old, went, came, wanted = case
    for scope in (Scope.ROWS, Scope.ALL):
        folder = tmp_path_factory.mktemp("master")
        before = rows_of(ss.build_master(old, folder, _keys_of(old.schema), page_bytes=PAGE))
        changes = [(1, came), (-1, went)] if scope is Scope.ROWS else [(1, wanted)]
        synced = _apply(folder, scope, changes)
        same_as_built(synced.master, wanted, tmp_path_factory.mktemp("built"))
        _changes_are_exact(synced, before, rows_of(synced.master))
        assert synced.master.manifest.source == {"kind": "test", "uri": "test"}


def test_what_the_caller_gets_wrong_is_said(tmp_path) -> None:
    with pytest.raises(MasterNotFoundError, match="build_master"):
        ss.sync_master(tmp_path / "none", deletes=[1])
    assert not (tmp_path / "none").exists()
    table = pa.table({"id": [1, 2], "name": ["a", "b"]})
    ss.build_master(table, tmp_path, key="id")
    with pytest.raises(OptionError, match="does not follow a table"):
        ss.sync_master(tmp_path)
    with pytest.raises(OptionError, match="either upserts and deletes, or"):
        ss.sync_master(tmp_path, 3, deletes=[1])
    with pytest.raises(SchemaError, match="table of upserts has no column 'name'"):
        ss.sync_master(tmp_path, upserts=table.select(["id"]))
    with pytest.raises(OptionError, match="upserts is a int; give a pyarrow Table"):
        ss.sync_master(tmp_path, upserts=7)
    with pytest.raises(OptionError, match="progress=7 cannot be called"):
        ss.sync_master(tmp_path, deletes=[1], progress=7)
    with pytest.raises(SchemaError, match="table of deletes has no column 'id'"):
        ss.sync_master(tmp_path, deletes=table.select(["name"]))
    assert ss.open_master(tmp_path).rows == 2


_KEYS = [
    *(
        [1.5],
        [2.999],
        [1.0],
        [True],
        ["x"],
        ["1"],
        [2**70],
        [2**63],
        [1.5, 2**63],
        [1, "a"],
        "abc",
        b"ab",
        7,
    ),
    *({"id": 1}, [[1]], np.array([1.5]), pa.array([1.5]), pa.array(["1"]), pa.array([100_000])),
    *(pa.table({"id": ["1"]}), pa.table({"id": [1.0]}), pa.table({"id": [100_000]})),
]


@pytest.mark.parametrize("keys", _KEYS, ids=range(len(_KEYS)))
def test_keys_of_another_kind_delete_nothing(keys, tmp_path) -> None:
    """Arrow would cut 1.5 to 1, and read a number from a text."""
    table = pa.table({"id": pa.array([1, 2, 3], pa.int16()), "name": ["a", "b", "c"]})
    before = rows_of(ss.build_master(table, tmp_path, key="id"))
    with pytest.raises(SchemaError, match="deletes"):
        ss.sync_master(tmp_path, deletes=keys)
    assert rows_of(ss.open_master(tmp_path)) == before


@pytest.mark.parametrize(
    "column",
    [{"id": ["1"]}, {"id": [1.0]}, {"id": [True]}, {"id": [2**40]}, {"v": [9.5]}, {"v": ["9"]}],
    ids=str,
)
def test_rows_of_another_kind_are_not_guessed(column, tmp_path) -> None:
    table = pa.table({"id": pa.array([1, 2], pa.int16()), "v": [1, 2]})
    before = rows_of(ss.build_master(table, tmp_path, key="id"))
    with pytest.raises(SchemaError, match="upserts"):
        ss.sync_master(tmp_path, upserts=pa.table({"id": [1], "v": [9]} | column))
    assert rows_of(ss.open_master(tmp_path)) == before


_DAY = datetime.date(2024, 2, 29)
_MOMENT = datetime.datetime(2024, 2, 29, 12, 30, 15, 250)
_OWN = [
    (pa.int8(), [5], [5]),
    (pa.uint64(), [2**63 + 5], [2**63 + 5]),
    (pa.string(), ["five"], ("five",)),
    (pa.large_string(), ["five"], {"five"}),
    (pa.dictionary(pa.int8(), pa.string()), ["five"], ["five"]),
    (pa.binary(), [b"five"], [b"five"]),
    (pa.binary(4), [b"five"], [b"five"]),
    (pa.bool_(), [True], [True]),
    (pa.date32(), [_DAY], [_DAY]),
    (pa.timestamp("ns"), [_MOMENT], [_MOMENT]),
    (pa.timestamp("us", "UTC"), [_MOMENT], [_MOMENT.replace(tzinfo=datetime.UTC)]),
    (pa.decimal128(10, 2), [Decimal("5.50")], [Decimal("5.5")]),
    (pa.int64(), [5], np.array([5, 7], dtype=np.int32)),
    (pa.int64(), [5], range(5, 6)),
    (pa.int64(), [5], (number for number in [5])),
    (pa.int64(), [5], pa.chunked_array([pa.array([5], pa.uint8())])),
]


@pytest.mark.parametrize(("kind", "there", "keys"), _OWN, ids=map(str, range(len(_OWN))))
def test_keys_of_the_masters_kind_go(kind, there, keys, tmp_path) -> None:
    ss.build_master(pa.table({"id": pa.array(there, kind)}), tmp_path, key="id")
    assert ss.sync_master(tmp_path, deletes=[]).deleted == 0
    assert ss.sync_master(tmp_path, deletes=[None]).deleted == 0
    assert ss.sync_master(tmp_path, deletes=keys).deleted == 1


def test_a_moment_that_the_key_cannot_hold_is_not_cut(tmp_path) -> None:
    table = pa.table({"id": pa.array([_MOMENT.replace(microsecond=0)], pa.timestamp("s"))})
    ss.build_master(table, tmp_path, key="id")
    for moment in (_MOMENT, _MOMENT.replace(tzinfo=datetime.UTC), _DAY):
        with pytest.raises(SchemaError, match="deletes"):
            ss.sync_master(tmp_path, deletes=[moment])
    assert ss.sync_master(tmp_path, deletes=[_MOMENT.replace(microsecond=0)]).deleted == 1


def test_types_that_pages_hold_otherwise_are_taken(tmp_path) -> None:
    kind = pa.dictionary(pa.int8(), pa.string())
    schema = pa.schema([("id", pa.int16()), ("colour", kind)])
    table = pa.table({"id": [1, 2], "colour": ["red", "blue"]}, schema=schema)
    ss.build_master(table, tmp_path, key="id")
    given = pa.table({"extra": [0], "colour": pa.array(["red"], pa.string_view()), "id": [2]})
    synced = ss.sync_master(tmp_path, upserts=given, deletes=pa.array([7, 1]))
    assert synced.master.schema == schema
    same_as_built(
        synced.master,
        table.slice(0, 1).set_column(0, "id", pa.array([2], pa.int16())),
        tmp_path / "built",
    )


@pytest.mark.parametrize("name", ["__weight", "__weight_", "weight"])
def test_a_column_of_any_name_is_synced(tmp_path, name) -> None:
    table = pa.table({"id": [1, 2, 3], name: ["a", "b", "c"]})
    ss.build_master(table, tmp_path / "m", key="id")
    upserts = pa.table({"id": [2, 4], name: ["x", "y"]})
    synced = ss.sync_master(tmp_path / "m", upserts=upserts, deletes=[1])
    wanted = pa.table({"id": [2, 3, 4], name: ["x", "c", "y"]})
    same_as_built(synced.master, wanted, tmp_path / "built")


# Merging


def test_rows_are_told_apart_bit_by_bit_in_every_type() -> None:
    kinds = {
        "float": pa.array([0.0, -0.0, float("nan"), float("nan"), None]),
        "list": pa.array([[1], [1, None], None, None, []]),
        "struct": pa.array([{"a": 1}, None, {"a": None}, {"a": None}, {"a": 2}]),
        "map": pa.array([[("k", 1)], [], None, None, [("k", 2)]], pa.map_(pa.string(), pa.int8())),
        "fixed": pa.array([[1, 2], [1, None], None, None, [2, 1]], pa.list_(pa.int8(), 2)),
        "null": pa.nulls(5),
    }
    for name, array in kinds.items():
        ids = row_ids(pa.record_batch({name: array}))
        assert ids[2] == ids[3]
        assert len(set(ids.tolist())) == (1 if name == "null" else 4), name
    types = pa.array([0, 1, 1, 1, 0], pa.int8())
    children = [pa.array([1, 5, 6, 7, 2]), pa.array(["x", "a", "b", "b", "y"])]
    union = pa.UnionArray.from_sparse(types, children)
    assert row_ids(pa.record_batch({"u": union})).tolist() == [0, 2, 3, 3, 1]


def _block(codes: list[int], keys: list[str], weights: list[int]) -> pa.RecordBatch:
    rows = pa.record_batch({"__code": codes, "k": keys})
    return pa.concat_batches([add_weight(rows.slice(i, 1), w) for i, w in enumerate(weights)])


def test_two_keys_with_one_code_are_two_keys() -> None:
    old = pa.record_batch({"__code": [1, 1, 2], "k": ["a", "b", "c"]})
    done = merge(old, _block([1, 1], ["b", "b"], [0, 1]), Scope.KEYS, ("k",))
    assert done.rows.column("k").to_pylist() == ["a", "b", "c"]
    assert done.changed.tolist() == []
    gone = merge(old, _block([1], ["b"], [0]), Scope.KEYS, ("k",))
    assert gone.rows.column("k").to_pylist() == ["a", "c"]
    assert (gone.changed.tolist(), gone.deleted) == ([1], 0)


def test_rows_that_are_not_there_cannot_go() -> None:
    old = pa.record_batch({"__code": [1], "k": ["a"]})
    with pytest.raises(MisfitError, match="not there; build the master again"):
        merge(old, _block([1], ["b"], [-1]), Scope.ROWS)


# Statistics and filter


def _numbered(ids, rows: int = 1) -> pa.Table:
    ids = np.repeat(np.asarray(ids), rows)
    return pa.table({"id": ids, "name": [f"name {i}" for i in ids]})


def test_the_most_frequent_value_goes_and_the_next_is_found(tmp_path) -> None:
    table = pa.concat_tables([_numbered(range(4000)), _numbered([5], 40), _numbered([3000], 20)])
    ss.build_master(table, tmp_path / "m", key="id", page_bytes=PAGE)
    synced = ss.sync_master(tmp_path / "m", deletes=[5])
    assert synced.master.statistics.most_duplicates == 21
    assert synced.pages_copied > synced.pages_rewritten == 1


def test_the_filter_grows_with_keys_and_forgets_those_that_went(tmp_path) -> None:
    ss.build_master(_numbered(range(1000)), tmp_path / "m", key="id", page_bytes=PAGE)
    grown = ss.sync_master(tmp_path / "m", upserts=_numbered(range(1000, 5000))).master
    same_as_built(grown, _numbered(range(5000)), tmp_path / "a")
    for start in range(5000, 25_000, 5000):  # all keys change, again and again
        new = _numbered(range(start, start + 5000))
        old = pa.array(range(start - 5000, start))
        moved = ss.sync_master(tmp_path / "m", upserts=new, deletes=old).master
        same_as_built(moved, new, tmp_path / "b")
    shrunk = ss.sync_master(tmp_path / "m", deletes=pa.array(range(20_000, 24_900))).master
    same_as_built(shrunk, _numbered(range(24_900, 25_000)), tmp_path / "c")
    assert shrunk.manifest.filter_words == filter_words(100)
    empty = ss.sync_master(tmp_path / "m", deletes=pa.array(range(24_900, 25_000))).master
    assert (empty.rows, empty.pages, empty.statistics.most_duplicates) == (0, 0, 0)


def test_a_master_without_filter_stays_so(tmp_path) -> None:
    ss.build_master(_numbered(range(100)), tmp_path / "m", key="id", filter=False)
    synced = ss.sync_master(tmp_path / "m", upserts=_numbered([7, 200]))
    assert (synced.master.manifest.filter_words, synced.values) == (0, 1)


def test_pages_do_not_wear_out(tmp_path) -> None:
    """Rows that grow and shrink in place again and again leave pages half full at least."""
    rng, ids = np.random.default_rng(3), np.arange(3000)
    names = dict.fromkeys(ids.tolist(), "x" * 40)
    table = pa.table({"id": ids, "name": list(names.values())})
    ss.build_master(table, tmp_path / "m", key="id", page_bytes=PAGE)
    for _ in range(25):
        some = rng.choice(ids, 40, replace=False).tolist()
        names |= {i: "y" * int(rng.integers(20, 61)) for i in some}
        new = pa.table({"id": some, "name": [names[i] for i in some]})
        master = ss.sync_master(tmp_path / "m", upserts=new).master
    built = ss.build_master(
        pa.table({"id": ids, "name": list(names.values())}), tmp_path / "b", "id", page_bytes=PAGE
    )
    assert rows_of(master) == rows_of(built)
    assert master.pages < 2 * built.pages


# Readers, writers, death


def test_who_reads_goes_on_while_syncs_run(tmp_path) -> None:
    ss.build_master(_numbered(range(2000)), tmp_path, key="id", page_bytes=PAGE)
    over, seen, failed = threading.Event(), set[str](), list[BaseException]()

    def read() -> None:
        try:
            while not over.is_set():
                master = ss.open_master(tmp_path)
                first = rows_of(master)
                assert len({row.split("v")[-1] for row in first if "'v" in row}) <= 1
                assert rows_of(master) == first
                seen.add(master.snapshot)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    for version in range(25):
        new = pa.table({"id": range(0, 2000, 100), "name": [f"v{version}"] * 20})
        ss.sync_master(tmp_path, upserts=new)
    over.set()
    thread.join()
    assert not failed, failed
    assert len(seen) > 2


def test_two_syncs_at_once_are_one(tmp_path) -> None:
    ss.build_master(_numbered(range(10)), tmp_path, key="id")

    def again(_: object) -> None:
        with pytest.raises(MasterError, match="another build is writing"):
            ss.sync_master(tmp_path, deletes=[2])

    assert ss.sync_master(tmp_path, deletes=[1], progress=again).master.rows == 9


_DYING = """
import json, os, signal, sys
import pyarrow as pa
import semistream as ss
from pathlib import Path

path, moments = sys.argv[1], [int(when) for when in sys.argv[2:]]
calls, replace = iter(range(100)), Path.replace

def sync(when):
    def before(self, target):
        if next(calls) == when:
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(self, target)

    def die(progress):
        if when < 0 and progress.phase == ("read" if when == -1 else "write"):
            os.kill(os.getpid(), signal.SIGKILL)

    Path.replace = before
    ss.sync_master(path, upserts=pa.table({"id": [7], "name": ["new"]}), progress=die)
    os._exit(0)

for when in moments:
    child = os.fork()
    if not child:
        sync(when)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    master = ss.open_master(path)
    print(json.dumps([status, master.manifest.files, master.verify(), os.listdir(path)]))
"""


def test_a_sync_that_is_killed_changes_nothing_and_leaves_nothing(tmp_path) -> None:
    """Killed while it reads, while it writes, and between the names that it gives."""
    path = tmp_path / "m"
    old = ss.build_master(_numbered(range(500)), path, key="id", page_bytes=PAGE)
    moments = [-1, -2, 0, 2, 3]
    command = [sys.executable, "-c", _DYING, str(path), *map(str, moments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    for when, line in zip(moments, done.stdout.splitlines(), strict=True):
        status, files, pages, names = json.loads(line)
        assert (status, files, pages) == (-signal.SIGKILL, old.manifest.files, old.pages)
        assert when >= 0 or not any(name.startswith(".draft") for name in names)
    assert old.verify() == old.pages
    synced = ss.sync_master(path, deletes=[1])
    assert (synced.deleted, synced.master.rows) == (1, 499)
    assert {"manifest.json", *synced.master.manifest.names} <= _names(path)
    assert not any(name.startswith(".draft") for name in _names(path))


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}
