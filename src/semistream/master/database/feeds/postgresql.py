"""Change feed of PostgreSQL: LISTEN, and a trigger that notifies."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from semistream.errors import OptionError
from semistream.master.database.feeds.feed import BEAT, Feed, FeedError, Notice, parse_key
from semistream.master.database.postgresql import PostgreSQL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from psycopg import Connection

    from semistream.master.database.address import Address

__all__ = ["Notifications", "trigger_sql"]

_LONGEST = 63  # bytes of a name in PostgreSQL
_LONGEST_OWN = _LONGEST - 16  # leaves bytes for the suffixes below
_TRIGGER = """\
-- Tells the channel {channel} the key of every row of {table} that is inserted, updated or deleted,
-- as JSON; null stands for all rows. To be run once, by the table's owner.
CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $function$
DECLARE
  told text[] := '{{}}';
BEGIN
  IF TG_OP = 'TRUNCATE' THEN
    told := ARRAY['null'];
  END IF;
  IF TG_OP IN ('UPDATE', 'DELETE') THEN
    told := told || {old}::text;
  END IF;
  IF TG_OP IN ('INSERT', 'UPDATE') THEN
    told := told || {new}::text;
  END IF;
  -- A notification has less than 8000 bytes.
  PERFORM pg_notify({channel_name}, CASE WHEN octet_length(t) < 8000 THEN t ELSE 'null' END)
    FROM unnest(told) AS t WHERE t IS NOT NULL;
  RETURN NULL;
END
$function$;
DROP TRIGGER IF EXISTS {rows_trigger} ON {table};
CREATE TRIGGER {rows_trigger} AFTER INSERT OR UPDATE OR DELETE ON {table}
  FOR EACH ROW EXECUTE FUNCTION {function}();
DROP TRIGGER IF EXISTS {table_trigger} ON {table};
CREATE TRIGGER {table_trigger} AFTER TRUNCATE ON {table}
  FOR EACH STATEMENT EXECUTE FUNCTION {function}();
"""


@dataclass(frozen=True)
class Notifications(Feed):
    """The notifications of a channel.

    Parameters
    ----------
    address
        Of the server. A direct one: a pooler that shares connections between
        transactions passes no notifications on.
    channel
        The channel; `trigger_sql` returns what has to be run in the database.
    """

    address: Address
    channel: str = "semistream"

    def listen(self, clock: Callable[[], float]) -> Iterator[Notice]:
        """Yield the keys of notifications; ping the server when there are none."""
        psycopg = _psycopg()
        try:
            connection: Connection[Any] = PostgreSQL().connect(self.address)
            with connection:
                channel = psycopg.sql.Identifier(self.channel)
                connection.execute(psycopg.sql.SQL("LISTEN {}").format(channel))
                while True:
                    asked = clock()
                    connection.execute("SELECT 1")
                    # What was sent before the answer has come with it.
                    yield _notice(connection, 0.0, asked)
                    yield _notice(connection, BEAT, None)
        except psycopg.Error as error:
            first_line = (str(error).splitlines() or [type(error).__name__])[0]
            cause = self.address.hide(first_line)
            msg = f"the notifications of channel {self.channel!r} are lost: {cause}"
            raise FeedError(msg) from None


def _notice(connection: Connection[Any], timeout: float, by: float | None) -> Notice:
    """Collect what comes within a time; only the first notification is waited for."""
    payloads = [n.payload for n in connection.notifies(timeout=timeout, stop_after=1)]
    try:
        keys = tuple(parse_key(payload) for payload in payloads)
    except ValueError:
        return Notice(everything=True, by=by)
    return Notice(keys, everything=None in keys, by=by)


def trigger_sql(table: str, key: str | Sequence[str], channel: str = "semistream") -> str:
    """Return the statements that make a table of PostgreSQL notify of its changes.

    Parameters
    ----------
    table
        The table, with its schema if need be.
    key
        The columns by which the table is joined.
    channel
        The channel on which a master's feed listens.

    Examples
    --------
    >>> print(trigger_sql("products", "product_id"))
    -- Tells the channel "semistream" the key of every row of "products" that is inserted, ...
    """
    names = [key] if isinstance(key, str) else list(key)
    if not names:
        raise OptionError("key=[] names no column; give those by which the table is joined")
    if len(channel.encode()) > _LONGEST:
        raise OptionError(f"channel {channel!r} is too long: {_LONGEST} bytes are the most")
    sql = _psycopg().sql
    own = _own_name(table.rpartition(".")[2])
    text: str = (
        sql.SQL(_TRIGGER)
        .format(
            table=sql.Identifier(*table.split(".")),
            function=sql.Identifier(*table.split(".")[:-1], f"{own}_changed"),
            rows_trigger=sql.Identifier(f"{own}_rows"),
            table_trigger=sql.Identifier(f"{own}_truncated"),
            channel=sql.Identifier(channel),
            channel_name=sql.Literal(channel),
            old=_json(sql, "OLD", names),
            new=_json(sql, "NEW", names),
        )
        .as_string()
    )
    return text


def _own_name(table: str) -> str:
    """Return the prefix of the names of a table's function and triggers."""
    name = f"semistream_{table}".encode()
    if len(name) > _LONGEST_OWN:
        name = name[: _LONGEST_OWN - 9] + f"_{sha256(name).hexdigest()[:8]}".encode()
    return name.decode(errors="ignore")  # a letter that was cut apart is left out


def _json(sql: Any, row: str, names: Sequence[str]) -> Any:  # noqa: ANN401 - psycopg's
    columns = [sql.SQL("{}.{}").format(sql.SQL(row), sql.Identifier(name)) for name in names]
    function = "to_json({})" if len(columns) == 1 else "json_build_array({})"
    return sql.SQL(function).format(sql.SQL(", ").join(columns))


def _psycopg() -> Any:  # noqa: ANN401 - the module
    try:
        import psycopg  # noqa: PLC0415 - an extra
        import psycopg.sql  # noqa: PLC0415
    except ModuleNotFoundError as error:
        msg = "notifications of PostgreSQL need psycopg: pip install 'semistream[postgresql]'"
        raise OptionError(msg) from error
    return psycopg
