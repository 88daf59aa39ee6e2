"""Masters in PostgreSQL and MariaDB: the rows of the reference, whatever the key."""

from __future__ import annotations

import pyarrow as pa
import pytest

import semistream as ss
from semistream import testing
from semistream.arrow import keys as key_codes
from semistream.errors import OptionError
from support import live
from support.hashes import colliding
from support.matrix import ALL

pytestmark = [pytest.mark.parts, pytest.mark.xdist_group("databases")]

HOW = ["inner", "left", "semi", "anti"]
SERVERS = ["postgresql", "mariadb"]
_CASES = {}


@pytest.fixture(params=SERVERS)
def server(request):
    return request.getfixturevalue(request.param)


def case_of(server, name):
    """Each case's table is made once a server."""
    if (server.scheme, name) not in _CASES:
        _CASES[server.scheme, name] = live.make(server, name)
    return _CASES[server.scheme, name]


@pytest.mark.parametrize("name", live.names())
def test_answers(server, name, tmp_path):
    """All join types on both servers together; ``pytest --all`` takes all on each."""
    case, number = case_of(server, name), live.names().index(name) + len(server.scheme)
    for how in HOW if ALL else [HOW[number % 4], HOW[number % 4 - 2]]:
        testing.check_answers("adaptive", case, how, tmp_path)


@pytest.mark.parametrize("check", testing.checks())
def test_all_checks(server, check, tmp_path):
    names = {"postgresql": "giant_string", "mysql": "string_and_date"}
    check("adaptive", case_of(server, names[server.scheme]), "left", tmp_path)


@pytest.mark.parametrize("how", HOW)
def test_hashes_that_collide(server, how, tmp_path, monkeypatch):
    case = case_of(server, "string")
    monkeypatch.setattr(key_codes, "_hashes", colliding(31))
    testing.check_drains("adaptive", case, how, tmp_path)


def test_postgresql_looks_keys_up_where_an_index_can(postgresql):
    count = 100_000
    table = pa.table({"id": range(count), "name": [f"product {i}" for i in range(count)]})
    plans = {}
    for name, key in (("indexed", "id"), ("plain", None)):
        postgresql.load(name, table, key=key)
        master = ss.open_master(postgresql.url(), table=name, key="id")
        asked = master.store.dialect.by_keys(master.table, [pa.array(range(0, count, 10))])
        with postgresql.connect() as connection:
            told = connection.execute(f"EXPLAIN {asked.sql}", asked.parameters).fetchall()
        plans[name] = "\n".join(line for (line,) in told)
    assert "Index Scan" in plans["indexed"]
    assert "Seq Scan" not in plans["indexed"]
    assert "Merge Join" not in plans["indexed"]  # of the whole index, which is what is chosen else
    assert "Nested Loop" not in plans["plain"]  # for each key it would read all of the table


def test_postgresql_reads_no_column_that_was_not_asked_for(postgresql):
    rows = {"shop": ["a", "a", "b"], "id": [1, 2, 1], "100%": [1.5, 2.5, 3.5], "cost": [1, 2, 3]}
    postgresql.load("granted", pa.table(rows), key=["shop", "id"])
    postgresql.execute(
        "DROP ROLE IF EXISTS reader",
        "CREATE ROLE reader LOGIN PASSWORD 'sesame'",
        'GRANT SELECT (shop, id, "100%") ON granted TO reader',
    )
    where, _, place = postgresql.url().rpartition("@")
    url = f"{where.partition('://')[0]}://reader:sesame@{place}"
    wish = {"table": "granted", "key": ["shop", "id"], "select": ["100%"]}
    master = ss.open_master(url, **wish, where=[("100%", "<", 3.0), ("shop", "in", ["a", "b"])])
    stream = pa.record_batch({"shop": ["a", "b", "a"], "id": [2, 1, 9]})
    with ss.Join(master, stream.schema, on=["shop", "id"], how="left", memory="1MB") as join:
        found = pa.Table.from_batches([*join.offer(stream), *join.drain()], schema=join.schema)
    assert dict(zip(found["id"].to_pylist(), found["100%"].to_pylist(), strict=True)) == {
        2: 2.5,
        1: None,
        9: None,
    }


def test_an_index_of_another_collation_is_none(postgresql):
    table = pa.table({"name": ["a", "b"], "price": [1, 2]})
    postgresql.load("collated", table)
    postgresql.execute('CREATE UNIQUE INDEX ON collated (name COLLATE "C")')
    assert not ss.open_master(postgresql.url(), table="collated", key="name").table.unique
    postgresql.execute("CREATE UNIQUE INDEX ON collated (name)")
    assert ss.open_master(postgresql.url(), table="collated", key="name").table.unique


def test_an_algorithm_that_reads_pages_is_refused(server):
    server.load("pageless", pa.table({"id": [1, 2], "name": ["a", "b"]}), "id")
    master = live.open_table(server, "pageless", "id")
    for algorithm in set(ss.algorithms()) - {"adaptive"}:
        with pytest.raises(OptionError, match=r"reads pages.*Take 'adaptive'.*build_master"):
            ss.Join(master, pa.schema([("id", pa.int64())]), on="id", algorithm=algorithm)
