"""How an enrichment runs on Spark: what passes through Python, and whether rows are routed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyspark

from semistream.errors import OptionError
from semistream.spec import PARTITION, TRANSFER

if TYPE_CHECKING:
    from collections.abc import Callable

    from semistream.master import Master
    from semistream.spark.probe import Hosts

__all__ = ["Choice", "Setting", "choose_partition", "choose_transfer"]

_HELD = 0.98


@dataclass(frozen=True)
class Choice:
    """What was chosen, and why."""

    value: str
    why: str

    def __str__(self) -> str:
        return f"{self.value} ({self.why})"


@dataclass(frozen=True)
class Setting:
    """What the choices depend on."""

    master: Master
    how: str
    algorithm: str
    tasks: int
    """Tasks that run at once in all executors."""
    hosts: Hosts | None
    """None where they were not looked at."""
    no_java: Callable[[], str] = str
    """Tells why Java cannot look rows up, nothing if it can; where it can, it is made ready."""

    @property
    def in_memory(self) -> bool:
        """Whether hosts hold the master's mapped pages, or have room for them."""
        if self.master.read != "mapped" or self.algorithm not in {"adaptive", "auto"}:
            return False
        if self.hosts is None:
            return True
        return self.hosts.held >= _HELD or self.master.manifest.pages_bytes <= self.hosts.free

    @property
    def live(self) -> bool:
        """Whether the master is in a database, and asked by lists of keys."""
        return self.master.read == "database" and self.algorithm in {"adaptive", "auto"}

    @property
    def scalar(self) -> bool:
        """Whether each row has at most one answer."""
        return self.how in {"semi", "anti"} or self.master.statistics.most_duplicates <= 1


def choose_transfer(asked: str, setting: Setting) -> Choice:
    """Choose what passes through Python: nothing, the keys alone, or whole rows."""
    if asked not in TRANSFER:
        raise OptionError.unknown("transfer", asked, TRANSFER)
    if asked != "auto":
        if refusal := _refusal(asked, setting):
            msg = f"transfer={asked!r} is not possible: {refusal}; take transfer='auto'"
            raise OptionError(msg)
        return Choice(asked, "as asked")
    no_java = setting.no_java() if setting.in_memory else "pages do not lie in memory"
    if not no_java:
        return Choice("none", "one answer a row, and Java reads pages that lie in memory")
    if no_keys := _no_keys(setting):
        return Choice("rows", no_keys)
    if setting.live:
        return Choice("keys", "one answer a row; its other columns need not pass")
    if not setting.in_memory:
        return Choice("rows", "rows may wait for their pages, and leave in any order")
    return Choice("keys", f"one answer a row, and pages lie in memory; not Java, for {no_java}")


def _refusal(asked: str, setting: Setting) -> str:
    if asked == "none":
        return setting.no_java()
    return _no_keys(setting) if asked == "keys" else ""


def _no_keys(setting: Setting) -> str:
    if has_arrow_udf() and setting.scalar:
        return ""
    if not setting.scalar:
        return "a key has several rows in this master"
    return f"pyspark {pyspark.__version__} has no arrow_udf, 4.1 has"


def choose_partition(asked: str, setting: Setting) -> Choice:
    """Choose whether rows are routed, so that a page is read by one task."""
    if asked not in PARTITION:
        raise OptionError.unknown("partition", asked, PARTITION)
    if asked == "key" and not has_arrow_udf():
        msg = f"partition='key' needs pyspark 4.1 or newer, this is {pyspark.__version__}"
        raise OptionError(msg)
    if asked != "auto":
        return Choice(asked, "as asked")
    if setting.in_memory:
        return Choice("none", "pages lie in memory, to read one twice costs nothing")
    if setting.live:
        return Choice("none", "a database has no pages")
    if setting.tasks == 1 or not has_arrow_udf():
        return Choice("none", "one task, or a Spark that cannot route")
    return Choice("key", f"{setting.tasks} tasks would each read the pages that hold their keys")


def has_arrow_udf() -> bool:
    """Whether this Spark has scalar functions on Arrow arrays."""
    return hasattr(pyspark.sql.functions, "arrow_udf")
