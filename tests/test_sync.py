"""Syncing masters: the result is that of a build, whatever came and went."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import semistream as ss
from semistream.master.filter import filter_words

if TYPE_CHECKING:
    from pathlib import Path

PAGE = 4096
LAYOUT = {"parts": 0, "pages": 0, "largest_part": 0}
NUMBERS = pa.schema([("id", pa.int64()), ("name", pa.string())])
STRINGS = pa.schema([("code", pa.string()), ("name", pa.string())])
PAIRS = pa.schema([("a", pa.int32()), ("b", pa.string()), ("name", pa.string())])


def rows_of(master: ss.Master) -> Counter[str]:
    reader, found = master.reader(), Counter[str]()
    for part in range(len(master.index.code)):
        found.update(map(repr, reader.load(part, 1)[0].to_pylist()))
    return found


def same_as_built(master: ss.Master, table: pa.Table, folder: Path) -> None:
    """Compare with a master that is built from these rows."""
    built = ss.build_master(table, folder, key=list(master.key), page_bytes=PAGE)
    assert rows_of(master) == rows_of(built)
    assert replace(master.statistics, **LAYOUT) == replace(built.statistics, **LAYOUT)
    assert master.verify() == master.pages
    _is_well_formed(master)
    if built.manifest.filter_words:
        _filter_is_good(master)


def _is_well_formed(master: ss.Master) -> None:
    index, s = master.index, master.statistics
    assert (index.page_code[1:] > index.page_code[:-1]).all()
    assert s.parts == len(index.code)
    assert s.pages == len(index.page_code)
    reader, last = master.reader(), None
    for page in range(master.pages):
        rows = [reader.load(part, 1)[0].column(0).to_pylist() for part in master.parts(page)]
        codes = [code for part in rows for code in part]
        assert codes == sorted(codes)
        assert codes[0] == index.page_code[page]
        assert last is None or codes[0] > last
        assert len(rows) == 1 or len(set(codes)) == 1
        last = codes[-1]


def _filter_is_good(master: ss.Master) -> None:
    keys = master.load_filter(master.manifest.filter_words)
    reader = master.reader()
    for part in range(len(master.index.code)):
        assert keys.may_contain(reader.load(part, 1)[0].column(0).to_numpy()).all()
    assert master.manifest.filter_words == filter_words(master.statistics.values)
    assert keys.fill <= 0.45 or master.statistics.values < 64


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
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
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
