"""The column that tells rows with a match: every algorithm, against DuckDB."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import semistream as ss
from semistream import testing
from semistream.errors import OptionError, SchemaError
from semistream.testing import reference_join, same_rows
from support.variants import each_variant

CASES = ["duplicates", "giant_string_key", "null_keys"]


@pytest.fixture(scope="module")
def masters(tmp_path_factory):
    return tmp_path_factory.mktemp("masters")


def expected(case: testing.Case) -> pa.Table:
    """A master column that is never null tells the same."""
    there = pa.array([True] * case.master.num_rows)
    stream = pa.Table.from_batches(case.stream)
    master = case.master.append_column("found", there)
    found = reference_join(stream, master, on=case.on, how="left", prefix=case.prefix)
    field = pa.field("found", pa.bool_(), nullable=False)
    return found.set_column(len(found.schema) - 1, field, pc.fill_null(found.columns[-1], False))


def check(algorithm, name, masters, **options):
    case = testing.case(name)
    watched = testing.start(algorithm, case, "left", masters, mark="found", **options)
    for batch in case.stream:
        watched.offer(batch)
    same_rows(watched.finish(), expected(case))


@pytest.mark.parametrize("name", CASES)
@each_variant
def test_rows_with_a_match_are_marked(algorithm, options, name, masters):
    check(algorithm, name, masters, **options)


def test_a_mark_stands_alone_where_no_column_is_taken(tmp_path):
    master = ss.build_master(pa.table({"id": [1, 2], "name": ["a", "b"]}), tmp_path, key="id")
    stream = pa.record_batch({"id": [2, None, 7]})
    wish = {"on": "id", "how": "left", "select": [], "mark": "found", "memory": "1MB"}
    with ss.Join(master, stream.schema, **wish) as join:
        rows = pa.Table.from_batches([*join.offer(stream), *join.drain()]).to_pylist()
    found = {row["id"]: row["found"] for row in rows}
    assert found == {2: True, None: False, 7: False}


def test_a_mark_is_refused_where_it_says_nothing(tmp_path):
    master = ss.build_master(pa.table({"id": [1], "name": ["a"]}), tmp_path, key="id")
    schema = pa.schema({"id": pa.int64()})
    with pytest.raises(OptionError, match="mark='found' tells the rows of a left join"):
        ss.Join(master, schema, on="id", how="inner", mark="found")
    for name in ("id", "name"):
        with pytest.raises(SchemaError, match=f"mark='{name}' is a column already"):
            ss.Join(master, schema, on="id", how="left", mark=name)


@pytest.mark.parametrize("name", ["many_dictionary_values", "resident", "integer_and_string"])
def test_marks_go_with_rows_that_are_encoded_held_or_compared(name, masters):
    check("adaptive", name, masters)
