"""Masters in databases, as Spark's driver and workers see them."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from semistream.errors import OptionError, StoreError
from semistream.master.database.address import is_url
from semistream.master.database.feeds.postgresql import Notifications
from semistream.master.database.master import DatabaseMaster
from semistream.spark.lookup.process_cache import PROCESS

if TYPE_CHECKING:
    import os

    from semistream.master import Master
    from semistream.master.database.address import Address

__all__ = ["check_table", "for_workers", "shared_master"]

_MOST = 64  # masters that a process remembers: far more than a driver has queries
_RUN = uuid.uuid4().hex  # this process, in the name of rows that hosts keep for it


def for_workers(master: Master | str | os.PathLike[str]) -> DatabaseMaster | None:
    """Return a master in a database as it travels to the workers; None for one of files.

    Rows that a host keeps expire after ``ttl``; without one, when this driver's process ends. A
    password in the driver's environment goes along, for executors need not have it in theirs.
    """
    if is_url(master):
        msg = (
            "a URL alone does not say which table; give enrich(df, ss.open_master(url, table=…, "
            "key=…), on=…)"
        )
        raise OptionError(msg)
    if not isinstance(master, DatabaseMaster):
        return None
    store, feed = replace(master.store, address=_with_password(master.store.address)), master.feed
    if isinstance(feed, Notifications):
        feed = replace(feed, address=_with_password(feed.address))
    return replace(master, store=store, feed=feed, run=_RUN if master.ttl is None else "")


def _with_password(address: Address) -> Address:
    return replace(address, password=address.secret())


def shared_master(master: DatabaseMaster) -> DatabaseMaster:
    """Return the same master at each task of a process: change feeds report to that one."""
    known, name = PROCESS.databases, (master.identity, str(master.schema), master.store)
    if name not in known:  # also with a new password
        for old in list(known)[: 1 - _MOST]:
            known.pop(old, None)  # perhaps another thread has done so
    return known.setdefault(name, master)


def check_table(master: DatabaseMaster) -> None:
    """Ask the database for the table; refuse one that has changed since it was opened."""
    store, parts = master.store, master.table.parts
    table = store.ask(lambda connection: store.dialect.describe(connection, parts))
    now = {} if table is None else {column.name: column.declared for column in table.columns}
    for column in master.table.columns:
        if now.get(column.name) != column.declared:
            msg = f"{store}: column {column.name!r} is not there as {column.declared} any more"
            raise StoreError(msg)
