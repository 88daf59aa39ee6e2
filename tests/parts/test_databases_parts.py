"""The servers and the proxy that other tests rely on do what they say."""

from __future__ import annotations

import datetime as dt
import threading
import time
from contextlib import closing
from decimal import Decimal
from typing import TYPE_CHECKING

import psycopg
import pyarrow as pa
import pymysql
import pytest

from support.servers.proxy import Proxy

if TYPE_CHECKING:
    from support.servers.databases import Server

pytestmark = [pytest.mark.parts, pytest.mark.xdist_group("databases")]

ERRORS = (psycopg.OperationalError, pymysql.OperationalError)
PRODUCTS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "name": ["tea", "", None],
        "price": pa.array([Decimal("1.50"), None, Decimal("-3.25")], pa.decimal128(9, 2)),
        "since": pa.array([dt.date(2024, 2, 29), None, dt.date(1970, 1, 1)]),
        "raw": pa.array([b"\0\xff", b"", None]),
        "sold": [True, False, None],
    }
)


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Server:
    return request.getfixturevalue(request.param)


def rows(server: Server) -> list[tuple[object, ...]]:
    return server.rows("SELECT id, name, price, since, raw, sold FROM products ORDER BY id")


def test_what_was_loaded_outlives_a_stop_and_a_kill(server: Server) -> None:
    server.load("products", PRODUCTS, key="id")
    wanted = [tuple(row.values()) for row in PRODUCTS.to_pylist()]
    assert rows(server) == wanted
    for kill in (False, True):
        with closing(server.connect()) as connection:
            server.restart(kill=kill)
            with pytest.raises(ERRORS):
                connection.cursor().execute("SELECT 1")
        assert rows(server) == wanted


def test_a_server_that_is_paused_answers_late(server: Server) -> None:
    with closing(server.connect()) as connection, closing(connection.cursor()) as cursor:
        server.pause()
        timer = threading.Timer(0.3, server.resume)
        timer.start()
        start = time.monotonic()
        cursor.execute("SELECT 1")
        assert time.monotonic() - start >= 0.2
        timer.join()


def test_a_proxy_delays_cuts_refuses_and_takes_connections_again(server: Server) -> None:
    with Proxy(server.port) as proxy:
        with closing(server.connect(proxy.port)) as connection, closing(connection.cursor()) as one:
            proxy.delay = 0.2
            start = time.monotonic()
            one.execute("SELECT 1")
            assert time.monotonic() - start >= 0.2
            proxy.delay = 0
            assert proxy.alive == 1
            proxy.cut()
            with pytest.raises(ERRORS):
                one.execute("SELECT 1")
        proxy.refuse()
        with pytest.raises(ERRORS):
            server.connect(proxy.port)
        proxy.accept()
        server.connect(proxy.port).close()
        assert proxy.accepted == 2


def test_a_proxy_cuts_in_the_middle_of_an_answer_and_slows_bytes(server: Server) -> None:
    with Proxy(server.port) as proxy:
        with closing(server.connect(proxy.port)) as connection, closing(connection.cursor()) as one:
            proxy.rate = 50_000
            start = time.monotonic()
            one.execute("SELECT repeat('x', 20000)")
            assert time.monotonic() - start >= 0.3
            proxy.rate = 0
            proxy.cut(after=100_000)
            with pytest.raises(ERRORS):
                one.execute("SELECT repeat('x', 1000000)")
        server.connect(proxy.port).close()
