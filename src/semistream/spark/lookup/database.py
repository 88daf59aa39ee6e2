"""Masters in databases, as Spark's driver and workers see them."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from semistream.errors import OptionError, StoreError
from semistream.master.database.address import is_url
from semistream.master.database.feeds.postgresql import Notifications
from semistream.master.database.master import DatabaseMaster

if TYPE_CHECKING:
    import os

    from semistream.master import Master
    from semistream.master.database.address import Address
    from semistream.master.database.store import Store

__all__ = ["for_workers", "in_database", "reach"]

_MOST = 64  # masters that a process remembers
_RUN = uuid.uuid4().hex
_known: dict[tuple[str, str, Store], DatabaseMaster] = {}


def for_workers(master: Master | str | os.PathLike[str]) -> DatabaseMaster | None:
    """Give a master in a database as it travels to the workers; None for one of files.

    What a host holds counts for ``ttl``; without one, as long as this driver's process runs. A
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
    store, feed = replace(master.store, address=_told(master.store.address)), master.feed
    if isinstance(feed, Notifications):
        feed = replace(feed, address=_told(feed.address))
    run = _RUN if master.ttl is None else ""
    return replace(master, store=store, feed=feed, run=run)


def _told(address: Address) -> Address:
    return replace(address, password=address.secret())


def in_database(master: DatabaseMaster) -> DatabaseMaster:
    """Give the same master at each task of a process: what changes is told to that one."""
    name = master.identity, str(master.schema), master.store  # as with a new password
    if name not in _known:
        for old in list(_known)[: 1 - _MOST]:
            _known.pop(old, None)  # perhaps another thread has done so
    return _known.setdefault(name, master)


def reach(master: DatabaseMaster) -> None:
    """Ask the database for the table; that it is not as it was is an error."""
    store, parts = master.store, master.table.parts
    found = store.ask(lambda connection: store.dialect.describe(connection, parts))
    now = {} if found is None else {column.name: column.declared for column in found.columns}
    for column in master.table.columns:
        if now.get(column.name) != column.declared:
            msg = f"{store}: column {column.name!r} is not there as {column.declared} any more"
            raise StoreError(msg)
