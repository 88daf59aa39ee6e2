"""How an enrichment runs on Spark: what passes through Python, and whether rows are routed."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

import pyspark

from semistream.errors import OptionError
from semistream.master import FileMaster
from semistream.spec import PARTITION, TRANSFER

if TYPE_CHECKING:
    from collections.abc import Callable

    from semistream.errors import BudgetError
    from semistream.master import Master
    from semistream.spark.enrich.probe import Hosts

__all__ = [
    "Choice",
    "Setting",
    "affordable_ways",
    "afforded",
    "choose_partition",
    "choose_transfer",
]

_BOTH = ["keys", "rows"]
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
    hosts: Hosts | None = None
    """None where they were not looked at."""
    no_java: Callable[[], str] = str
    """Tells why Java cannot look rows up, nothing if it can; where it can, it is made ready."""
    shortage: Callable[[str], BudgetError | None] = lambda _: None
    """Tells why memory is too small for a way through Python, ``"keys"`` or ``"rows"``."""

    @property
    def in_memory(self) -> bool:
        """Whether hosts hold the master's mapped pages, or have room for them."""
        if not (isinstance(self.master, FileMaster) and self.master.is_mapped):
            return False
        if self.algorithm != "adaptive":
            return False
        if self.hosts is None:
            return True
        return self.hosts.held >= _HELD or self.master.manifest.pages_bytes <= self.hosts.free

    @property
    def live(self) -> bool:
        """Whether the master is in a database, and asked by lists of keys."""
        return self.master.is_live

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


def affordable_ways(asked: str, setting: Setting) -> list[str]:
    """Return the ways through Python for which memory suffices; if there is none, raise.

    Where Java does the look-ups there must be one, too: another snapshot may need it.
    """
    ways = [asked] if asked in {"keys", "rows"} else ["rows"] if _no_keys(setting) else _BOTH
    shortages = {way: setting.shortage(way) for way in ways}
    if found := [way for way in ways if shortages[way] is None]:
        return found
    raise min(filter(None, shortages.values()), key=attrgetter("least"))


def afforded(choice: Choice, ways: list[str]) -> Choice:
    """Return a choice, or one of ``ways`` where memory is too small for it.

    Examples
    --------
    >>> print(afforded(Choice("keys", "one answer a row"), ["rows"]))
    rows (memory is too small for transfer='keys')
    """
    if choice.value in {"none", *ways}:
        return choice
    return Choice(ways[0], f"memory is too small for transfer={choice.value!r}")


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
