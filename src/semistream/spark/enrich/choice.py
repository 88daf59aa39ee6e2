"""How an enrichment runs on Spark: what passes through Python, and whether rows are routed."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

import pyspark

from semistream.errors import OptionError
from semistream.master import FileMaster

if TYPE_CHECKING:
    from collections.abc import Callable

    from semistream.errors import BudgetError
    from semistream.master import Master
    from semistream.spark.enrich.probe import Hosts

__all__ = ["Choice", "Setting", "affordable", "choose_partition", "choose_transfer", "fit_budget"]

_IN_MEMORY = 0.98  # of a master's pages; a few are evicted again wherever memory is in use


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
    """What a probe of the executors reported; None if they were not probed."""
    no_java: Callable[[], str] = str
    """Return why Java cannot look rows up, "" if it can; where it can, prepare it."""
    shortage: Callable[[str], BudgetError | None] = lambda _: None
    """Return the error if memory is too small for transfer="keys" or "rows"."""

    @property
    def in_memory(self) -> bool:
        """Whether hosts hold the master's mapped pages, or have room for them."""
        if not (isinstance(self.master, FileMaster) and self.master.is_mapped):
            return False
        if self.algorithm != "adaptive":
            return False
        if self.hosts is None:
            return True
        return self.hosts.held >= _IN_MEMORY or self.master.manifest.pages_bytes <= self.hosts.free

    def reads_directly(self, transfer: Choice) -> bool:
        """Return whether pages are best read past the page cache, which has no room for them."""
        if transfer.value == "none" or self.hosts is None or self.algorithm != "adaptive":
            return False
        return self.hosts.direct and not self.in_memory

    @property
    def no_keys(self) -> str:
        """Why keys cannot pass alone; "" if they can."""
        if self.how in {"inner", "left"} and self.master.statistics.most_duplicates > 1:
            return "a key has several rows in this master"
        return "" if has_arrow_udf() else f"pyspark {pyspark.__version__} has no arrow_udf, 4.1 has"


def choose_transfer(asked: str, setting: Setting) -> Choice:
    """Choose what passes through Python: nothing, the keys alone, or whole rows."""
    if asked != "auto":
        reason = setting.no_java() if asked == "none" else setting.no_keys
        if reason and asked != "rows":
            msg = f"transfer={asked!r} is not possible: {reason}; take transfer='auto'"
            raise OptionError(msg)
        return Choice(asked, "as asked")
    no_java = setting.no_java() if setting.in_memory else "pages do not lie in memory"
    if not no_java:
        return Choice("none", "one answer a row, and Java reads pages that lie in memory")
    if setting.no_keys:
        return Choice("rows", setting.no_keys)
    if setting.master.is_live:
        return Choice("keys", "one answer a row; its other columns need not pass")
    if not setting.in_memory:
        return Choice("rows", "rows may wait for their pages, and leave in any order")
    return Choice("keys", f"one answer a row, and pages lie in memory; not Java, for {no_java}")


def affordable(asked: str, setting: Setting) -> list[str]:
    """Return the ways through Python for which memory suffices; if there is none, raise.

    Where Java does the look-ups there must be one, too: another snapshot may need it.
    """
    either = ["rows"] if setting.no_keys else ["keys", "rows"]
    ways = [asked] if asked in {"keys", "rows"} else either
    shortages = {way: setting.shortage(way) for way in ways}
    if enough := [way for way in ways if shortages[way] is None]:
        return enough
    raise min(filter(None, shortages.values()), key=attrgetter("least"))


def fit_budget(choice: Choice, ways: list[str]) -> Choice:
    """Return a choice, or one of ``ways`` where memory is too small for it.

    Examples
    --------
    >>> print(fit_budget(Choice("keys", "one answer a row"), ["rows"]))
    rows (memory is too small for transfer='keys')
    """
    if choice.value in {"none", *ways}:
        return choice
    return Choice(ways[0], f"memory is too small for transfer={choice.value!r}")


def choose_partition(asked: str, setting: Setting) -> Choice:
    """Choose whether rows are routed, so that a page is read by one task."""
    if asked == "key" and not has_arrow_udf():
        msg = f"partition='key' needs pyspark 4.1 or newer, this is {pyspark.__version__}"
        raise OptionError(msg)
    if asked != "auto":
        return Choice(asked, "as asked")
    if setting.in_memory:
        return Choice("none", "pages lie in memory, to read one twice costs nothing")
    if setting.master.is_live:
        return Choice("none", "a database has no pages")
    if setting.tasks == 1 or not has_arrow_udf():
        return Choice("none", "one task, or a Spark that cannot route")
    return Choice("key", f"{setting.tasks} tasks would each read the pages that hold their keys")


def has_arrow_udf() -> bool:
    """Whether this Spark has scalar functions on Arrow arrays."""
    return hasattr(pyspark.sql.functions, "arrow_udf")
