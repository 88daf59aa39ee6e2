"""Arguments of the functions on Spark that are of a wrong kind: refused, with what to give."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from semistream.errors import OptionError

__all__ = ["check_frame", "check_watch"]

_MOST_PORT = 65_535


def check_frame(what: str, frame: object) -> None:
    """Refuse what is no DataFrame of Spark's."""
    if not isinstance(frame, DataFrame):
        msg = (
            f"{what} is {_described(frame)}; give a DataFrame of Spark: spark.createDataFrame(…) "
            "makes one of rows, of pandas and of Arrow. Record batches of Arrow are joined without "
            "Spark by semistream.Join"
        )
        raise OptionError(msg)


def check_watch(spark: object, each: object, prometheus: object, address: object) -> None:
    """Refuse arguments of `semistream.watch` that are of a wrong kind."""
    if not isinstance(spark, SparkSession):
        msg = f"spark is {_described(spark)}; give a session of Spark, as that of a query's frame"
        raise OptionError(f"{msg}: df.sparkSession")
    if each is not None and not callable(each):
        msg = f"each={each!r} is no function; give one that takes the metrics of a batch, or None"
        raise OptionError(msg)
    is_port = isinstance(prometheus, int) and 0 <= prometheus <= _MOST_PORT
    if prometheus is not None and (isinstance(prometheus, bool) or not is_port):
        msg = f"prometheus={prometheus!r} is no port; give one up to {_MOST_PORT:,}, 0 for any"
        raise OptionError(msg)
    if not isinstance(address, str):
        msg = f"address={address!r} is no address; give that of an interface, as '127.0.0.1'"
        raise OptionError(msg)


def _described(value: object) -> str:
    """Return a value as a message has it: tables are long."""
    if value is None or isinstance(value, str | int | float):
        return repr(value)
    return f"a {type(value).__module__.partition('.')[0]} {type(value).__name__}"
