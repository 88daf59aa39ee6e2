"""Any order of rows, changes and drains: each answer is what the table held when it was given."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import semistream as ss
from semistream.testing import Watched
from support.live import open_table
from support.matrix import ALL

pytestmark = [pytest.mark.parts, pytest.mark.xdist_group("databases")]

_KEYS = st.one_of(st.none(), st.integers(-3, 40))
_ROWS = st.tuples(st.just("rows"), st.lists(_KEYS, min_size=1, max_size=60))
_CHANGES = st.tuples(st.sampled_from(["insert", "delete", "update"]), st.integers(0, 40))
_OTHERS = st.tuples(st.sampled_from(["drain", "tick"]), st.none())
_STEPS = st.lists(st.one_of(_ROWS, _ROWS, _CHANGES, _OTHERS), max_size=25)
_SQL = {
    "insert": "INSERT INTO moving VALUES (%s, %s)",
    "delete": "DELETE FROM moving WHERE id = %s",
    "update": "UPDATE moving SET name = %s WHERE id = %s",
}


class Model:
    """The table, in Python and in the database."""

    def __init__(self, connection):
        self._connection, self.table, self._count = connection, {}, 0
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM moving")
        for key in [*range(0, 30, 2), 4, 4, 4]:
            self.change("insert", key)

    def change(self, what, key):
        self._count += 1
        name = f"{self._count} {'x' * (self._count % 50)}"
        held = self.table.setdefault(key, [])
        if what == "insert":
            values = key, name
            held.append(name)
        elif what == "delete":
            values = (key,)
            held.clear()
        else:
            values = name, key
            held[:] = [name] * len(held)
        with self._connection.cursor() as cursor:
            cursor.execute(_SQL[what], values)

    def expected(self, keys):
        return Counter((key, name) for key in keys for name in (self.table.get(key) or [None]))


@pytest.fixture(params=["postgresql", "mariadb"])
def moving(request):
    server = request.getfixturevalue(request.param)
    server.execute(
        "DROP TABLE IF EXISTS moving",
        "CREATE TABLE moving (id integer, name varchar(80))",
        "CREATE INDEX moving_key ON moving (id)",
    )
    connection = server.connect()
    yield open_table(server, "moving", "id"), connection
    connection.close()


def test_each_answer_is_what_the_table_held(moving):
    master, connection = moving
    examples = 400 if ALL else 12

    @settings(max_examples=examples, deadline=None, derandomize=True)
    @given(steps=_STEPS, memory=st.sampled_from(["12KB", "20KB", "64KB"]))
    def run(steps, memory):
        check(master, connection, steps, memory)

    run()


def check(master, connection, steps, memory):
    model, asked, expected = Model(connection), [], Counter()
    schema = pa.schema([("id", pa.int64())])
    watched = Watched(ss.Join(master, schema, on="id", how="left", memory=memory))
    for what, value in steps:
        if what == "rows":
            asked += value
            watched.offer(pa.record_batch({"id": pa.array(value, pa.int64())}))
        elif what == "tick":
            watched.read(watched.join.tick())
        else:
            watched.read(watched.join.drain())
            expected += model.expected(asked)
            asked = []
        if what in _SQL:
            model.change(what, value)
            master.invalidate([value])
    expected += model.expected(asked)
    found = watched.finish()
    assert Counter(zip(*(column.to_pylist() for column in found.columns), strict=True)) == expected
