"""Open a table in a database: its columns, its key, and how wide its rows are."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from semistream.arrow.types import row_bytes
from semistream.errors import MasterNotFoundError, OptionError, SchemaError
from semistream.master.database.address import Address
from semistream.master.database.dialect import Table, check_conditions
from semistream.master.database.feeds.kafka import Topic
from semistream.master.database.feeds.postgresql import Notifications
from semistream.master.database.master import DatabaseMaster, OrderedKeys
from semistream.master.database.store import Retry, Store
from semistream.master.protocol import Statistics, page_schema
from semistream.system.shared_folder import boot_seed
from semistream.units import parse_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from semistream.arrow.keys import Keys
    from semistream.master.database.dialect import Description
    from semistream.master.database.feeds.feed import Feed

__all__ = ["open_database"]

log = logging.getLogger("semistream")

_SAMPLE = 1_000  # rows that are measured for the mean width
_ABSENT = 20  # fraction of ttl that is the default absent_ttl: new rows should not wait for long


def open_database(  # noqa: PLR0913 - a table has these parts; all but three have defaults
    url: str,
    *,
    table: str | Sequence[str],
    key: str | Sequence[str],
    select: Sequence[str] | None = None,
    where: Sequence[Sequence[Any]] | None = None,
    ttl: float | str | timedelta | None = None,
    absent_ttl: float | str | timedelta | None = None,
    password_env: str | None = None,
    retry: float | str | timedelta | Retry = 60.0,
    feed: str | Feed | None = None,
) -> DatabaseMaster:
    """Open a table in PostgreSQL, MySQL or MariaDB as a master.

    Parameters
    ----------
    url
        ``"postgresql://user@host:port/database?option=…"``, ``"mysql://…"`` or ``"mariadb://…"``.
        A password in it is used and never shown. PostgreSQL's own variables (``PGPASSWORD``, …)
        and password file are followed, too.
    table
        The table's name, with its schema's and a dot before it if need be; or both as a list,
        where a name has a dot. A view does as well.
    key
        The columns by which rows are found; an index should begin with them.
    select
        The columns that may be used, beside the key; all if not given. No others are read.
    where
        Conditions that a row must meet, as ``[("active", "=", True), ("country", "in", ["AT"])]``;
        the database checks them. Anything else can be said in a view.
    ttl
        TTL of a row that was fetched: seconds, ``"10m"`` or a timedelta. Without it, a row is kept
        as long as the join.
    absent_ttl
        The same for the answer that there is no row; a twentieth of ``ttl`` if not given.
    password_env
        The environment variable that has the password, wherever a connection is made.
    retry
        Seconds, or a string such as ``"60s"``, for which transient errors are retried.
    feed
        A change feed, so that changed rows are fetched anew at once: ``"notify"`` (or
        ``"notify:channel"``) for PostgreSQL's notifications, see ``semistream master trigger``;
        ``"kafka://host:port/topic"`` for a topic of changed keys.
    """
    parts = tuple(table.split(".")) if isinstance(table, str) else tuple(table)
    keys = (key,) if isinstance(key, str) else tuple(key)
    back_off = retry if isinstance(retry, Retry) else Retry(limit=parse_seconds(retry, "retry"))
    # All that can be checked here is, before a server that may be away is waited for.
    row_ttl = None if ttl is None else parse_seconds(ttl, "ttl")
    miss_ttl = None if row_ttl is None else row_ttl / _ABSENT
    if absent_ttl is not None:
        miss_ttl = parse_seconds(absent_ttl, "absent_ttl")
    store = Store(Address.parse(url, password_env), ".".join(parts), back_off)
    changes = _open_feed(feed, store.address)
    description = store.ask(lambda connection: store.dialect.describe(connection, parts))
    if description is None:
        msg = (
            f"{store}: there is no such table, or {store.address.user or 'this user'} may not see "
            "it; give its name as table='schema.name', in the letters it was created with"
        )
        raise MasterNotFoundError(msg)
    indexes = description.indexes
    if indexes and not any(set(names[: len(keys)]) == set(keys) for _, names in indexes):
        log.warning("%s has no index on %s: each query will read all of it", store, ", ".join(keys))
    source = _resolve(store, description, parts, keys, select, where)
    codes = OrderedKeys.of(source.schema, keys, boot_seed())
    statistics = _estimate(store, description, source, codes)
    return DatabaseMaster(
        keys=codes,
        schema=source.schema,
        statistics=statistics,
        store=store,
        table=source,
        ttl=row_ttl,
        absent_ttl=miss_ttl,
        feed=changes,
        counted=description.rows > 0 or statistics.rows < _SAMPLE,
    )


def _open_feed(feed: str | Feed | None, address: Address) -> Feed | None:
    if not isinstance(feed, str):
        return feed
    kind, _, channel = feed.partition(":")
    if kind == "kafka":
        return Topic.at(feed)
    if kind != "notify":
        raise OptionError.unknown("feed", feed, ["notify", "notify:channel", "kafka://…"])
    if address.kind != "postgresql":
        msg = f"feed={feed!r}: only PostgreSQL notifies; give kafka://host:port/topic"
        raise OptionError(msg)
    return Notifications(address, channel or "semistream")


def _resolve(
    store: Store,
    description: Description,
    parts: tuple[str, ...],
    key: tuple[str, ...],
    select: Sequence[str] | None,
    where: Sequence[Sequence[Any]] | None,
) -> Table:
    """Check the columns that are wanted against those that there are."""
    names = [column.name for column in description.columns]
    if isinstance(select, str):
        msg = f"select={select!r} is one string; give a list of column names"
        raise OptionError(msg)
    for name in (*key, *(select or ())):
        if name not in names:
            raise SchemaError.missing(f"table {store.table}", name, names)
    wanted = names if select is None else {*key, *select}
    columns = tuple(column for column in description.columns if column.name in wanted)
    unique = any(unique and set(names) <= set(key) for unique, names in description.indexes)
    table = Table(parts, key, columns, check_conditions(where, names), unique)
    for column in table.keys:
        if problem := store.dialect.key_problem(column):
            msg = f"{store}: {column.name!r} cannot be the key: {problem}; cast it in a view"
            raise SchemaError(msg)
    return table


def _estimate(store: Store, description: Description, table: Table, keys: Keys) -> Statistics:
    """Estimate statistics: the database's number of rows, and the widths of a sample."""
    columns = [*table.keys, *table.payload]
    wanted = page_schema(table.schema, keys).names[1:]
    sizes = [8]
    for piece in store.rows(store.dialect.sample(table, _SAMPLE), columns, 1 << 20):
        named = dict(zip([column.name for column in columns], piece, strict=True))
        batch = pa.RecordBatch.from_arrays([named[name] for name in wanted], wanted)
        sizes += (row_bytes(batch) + 8).tolist()
    mean, rows = sum(sizes) / len(sizes), max(description.rows, len(sizes) - 1)
    return Statistics(
        rows=rows, parts=1, pages=1, bytes=int(rows * mean), widest_row=max(sizes),
        largest_part=0, values=rows, most_duplicates=1 if table.unique else max(2, rows),
        null_keys=0,
    )  # fmt: skip
