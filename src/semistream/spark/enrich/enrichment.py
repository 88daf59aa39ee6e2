"""From the arguments of `enrich` to a DataFrame: everything is checked before a row flows."""

from __future__ import annotations

import itertools
import logging
import os
import warnings
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from semistream.errors import BudgetError, OptionError, SchemaError
from semistream.master import FileMaster
from semistream.master.open import checked_path
from semistream.master.place import without_secrets
from semistream.missing import SPLITTING, STATUS, OnMissing
from semistream.names import check_text
from semistream.spark.cluster import executors as cluster
from semistream.spark.enrich.choice import (
    Setting,
    affordable_ways,
    afforded,
    choose_partition,
    choose_transfer,
)
from semistream.spark.enrich.probe import probe
from semistream.spark.jvm.lookup import by_jvm, why_not
from semistream.spark.lookup.database import for_workers
from semistream.spark.lookup.job import Copies, Job
from semistream.spark.lookup.outcome import marks_of
from semistream.spark.lookup.route import routed
from semistream.spark.lookup.snapshot import attempt_of_driver, settled
from semistream.spark.lookup.transfer import by_keys, by_rows
from semistream.spark.lookup.worker import opened
from semistream.spark.metrics.watch import note_enrichment, reports_of
from semistream.spark.types import arrow_schema, check_collations
from semistream.spec import resolve_how
from semistream.units import parse_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from semistream.master import Master
    from semistream.missing import Missing
    from semistream.spec import On

    Numbers = dict[str, itertools.count[int]]

__all__ = ["Wish", "enriched"]

log = logging.getLogger(__name__)

_COPIES = "100GB"


@dataclass(frozen=True)
class Wish:
    """The arguments of `semistream.api`, as they were given."""

    on: On
    how: str
    memory: int | str
    algorithm: str
    select: Sequence[str] | None
    prefix: str
    partition: str
    transfer: str
    localize: bool | str
    read: str
    name: str | None
    tasks: int | None
    check: bool
    status: str | None
    on_missing: Missing | None
    options: dict[str, Any]
    single: bool = False
    """Whether a row must come out as one, though it went by rows: a pipeline may need it."""
    alone: bool = False
    """Whether no other enrichment of its query has this name; then metrics have it as it is."""


def enriched(df: DataFrame, master: Master | str | os.PathLike[str], wish: Wish) -> DataFrame:
    """Give the DataFrame joined as wished."""
    spark = df.sparkSession
    job = settled(spark, _job(df, master, wish), df.isStreaming)
    table = opened(job)
    if isinstance(table, FileMaster) and not df.isStreaming:  # also where nothing could be held
        job = replace(job, files=table.manifest.files)
    job = job.resolved(table, wish.on, wish.select)
    check_collations(df.schema, job.on)
    _check_names(df, job)
    everywhere = job.tasks * cluster.executors(spark)
    no_java, shortage = partial(why_not, spark, job, table), partial(_shortage, job, table)
    setting = Setting(table, job.how, job.algorithm, everywhere, None, no_java, shortage)
    ways = affordable_ways(wish.transfer, setting)
    setting = replace(setting, hosts=probe(spark, job) if wish.check else None)
    transfer = afforded(choose_transfer(wish.transfer, setting), ways)
    partition = choose_partition(wish.partition, setting)
    log.info("enrich %r: transfer=%s, partition=%s", job.name, transfer, partition)
    if partition.value == "key":
        df = routed(df, job, everywhere)
    channel = reports_of(df)
    if transfer.value == "none":
        return by_jvm(df, job, table)
    note_enrichment(job, None)
    if warning := cluster.memory_warning(spark, job.memory, job.tasks):
        warnings.warn(warning, stacklevel=3)
    if transfer.value == "rows":
        return by_rows(df, job, channel, table.schema)
    return by_keys(df, job, channel, table.schema)


def _shortage(job: Job, master: Master, way: str) -> BudgetError | None:
    """Return why a job's memory is too small for a way through Python."""
    try:
        (job.keys_only() if way == "keys" else job).check_budget(master)
    except BudgetError as error:
        return error
    return None


def _check_names(df: DataFrame, job: Job) -> None:
    """Refuse names that Spark cannot tell apart."""
    names = [*df.columns, *(job.prefix + name for name in job.select)]
    if job.status in names:
        msg = f"status={job.status!r} is a column already; give another name"
        raise SchemaError(msg)
    if str(df.sparkSession.conf.get("spark.sql.caseSensitive", "false")).lower() == "true":
        return
    seen: dict[str, str] = {}
    for name in (*names, job.status):
        if (other := seen.setdefault(name.casefold(), name)) != name:
            msg = (
                f"Spark cannot tell the columns {other!r} and {name!r} apart: leave one out with "
                "select=[…], rename the master's with prefix='master_', or set "
                "spark.sql.caseSensitive=true"
            )
            raise SchemaError(msg)


def _job(df: DataFrame, master: Master | str | os.PathLike[str], wish: Wish) -> Job:
    """Give the job as far as it does not depend on the master."""
    database = for_workers(master)
    path: str | os.PathLike[str]
    if database is not None:
        path, read = f"{database.store.address}/{database.store.table}", "database"
    elif isinstance(master, FileMaster):
        path, read = master.path, master.read
    else:
        path, read = checked_path(master), wish.read
    for what, text in (("name", wish.name), ("status", wish.status)):
        check_text(what, text or "", "the name of a column" if what == "status" else "one")
    called = wish.name or PurePath(without_secrets(os.fspath(path))).name or "master"
    return Job(
        name=called if wish.alone else _unique(called, df.sparkSession),
        called=called,
        path=_absolute(os.fspath(path)),
        read=read,
        stream=arrow_schema(df.schema),
        how=wish.how,
        prefix=wish.prefix,
        memory=parse_bytes(wish.memory),
        tasks=wish.tasks if wish.tasks is not None else cluster.tasks_at_once(df.sparkSession),
        algorithm=wish.algorithm,
        options=wish.options,
        copies=_copies(wish.localize),
        database=database,
        status=_status(wish),
        single=wish.single,
        missing=OnMissing.of(wish.on_missing, resolve_how(wish.how)),
        earlier=_earlier(df, wish.how),
        files=master.manifest.files if isinstance(master, FileMaster) and master.chosen else "",
    )


def _status(wish: Wish) -> str:
    """Give the name of the status column; refuse one where all rows would have the same."""
    if wish.status and resolve_how(wish.how) != "left":
        msg = (
            f"status={wish.status!r} tells rows with a match from those without, which "
            f"how={wish.how!r} does not both give; take how='left'"
        )
        raise OptionError(msg)
    return wish.status or (STATUS if wish.on_missing in SPLITTING else "")


def _earlier(df: DataFrame, how: str) -> tuple[str, ...]:
    """Give the status columns by which rows will be parted; such rows must stay till then."""
    found = [mark for mark in marks_of(df.schema) if mark.splits]
    if found and resolve_how(how) != "left":
        msg = (
            f"how={how!r} would lose rows that enrichment {found[-1].enrichment!r} has marked for "
            f"on_missing={found[-1].on_missing!r}; take how='left' with on_missing='drop', or put "
            "it before that one"
        )
        raise OptionError(msg)
    return tuple(mark.column for mark in found)


def _absolute(path: str) -> str:
    return path if "://" in path else str(Path(path).absolute())


def _copies(localize: bool | str) -> Copies | None:
    if localize is False:
        return None
    return Copies(None, parse_bytes(_COPIES if localize is True else localize, "localize"))


_names: Numbers = {}
_names_in_batch: dict[str, tuple[tuple[str, ...], Numbers]] = {}


def _unique(name: str, spark: SparkSession) -> str:
    """Give a name that no other enrichment of this process has.

    Those that are made in a foreachBatch are the same in every batch, and keep their names.
    """
    attempt = attempt_of_driver(spark)
    numbers = _numbers_in(attempt) if attempt else _names
    number = next(numbers.setdefault(name, itertools.count(1)))
    return name if number == 1 else f"{name}_{number}"


def _numbers_in(attempt: tuple[str, str, str]) -> Numbers:
    """Give how often names were given in an attempt at a micro-batch, the last of its query."""
    query, *_ = attempt
    if query not in _names_in_batch or _names_in_batch[query][0] != attempt:
        _names_in_batch[query] = attempt, {}
    return _names_in_batch[query][1]
