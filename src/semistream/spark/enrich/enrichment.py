"""From the arguments of `enrich` to a DataFrame: everything is checked before a row flows."""

from __future__ import annotations

import logging
import os
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from semistream.errors import BudgetError, OptionError, SchemaError
from semistream.master import FileMaster
from semistream.master.open import path_of
from semistream.master.place import without_secrets
from semistream.missing import SPLITTING, STATUS, OnMissing
from semistream.names import check_text
from semistream.spark.cluster import executors as cluster
from semistream.spark.cluster.context_state import state_of
from semistream.spark.enrich.choice import (
    Setting,
    affordable,
    choose_partition,
    choose_transfer,
    fit_budget,
)
from semistream.spark.enrich.probe import probe
from semistream.spark.jvm.lookup import by_jvm, why_not
from semistream.spark.lookup.database import for_workers
from semistream.spark.lookup.job import Copies, Job
from semistream.spark.lookup.outcome import marks_of
from semistream.spark.lookup.route import route_rows
from semistream.spark.lookup.snapshot import attempt_of_driver, choose_snapshot
from semistream.spark.lookup.transfer import by_keys, by_rows
from semistream.spark.lookup.worker import open_job_master
from semistream.spark.metrics.listener import note_enrichment, report_channel
from semistream.spark.types import arrow_schema, check_collations
from semistream.spec import resolve_how

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from semistream.master import Master
    from semistream.options import EnrichOptions

__all__ = ["enrich_frame"]

log = logging.getLogger(__name__)


def enrich_frame(
    df: DataFrame,
    master: Master | str | os.PathLike[str],
    options: EnrichOptions,
    *,
    single: bool = False,
    keep_name: bool = False,
) -> DataFrame:
    """Return the DataFrame joined with the master.

    Parameters
    ----------
    single
        Whether a row must come out as one, though it went by rows: a pipeline may need it.
    keep_name
        Whether no other enrichment of its query has this name; then metrics have it as it is.
    """
    spark = df.sparkSession
    job = _job(df, master, options)
    name = job.called
    if not keep_name:
        name = state_of(spark).unique_name(name, attempt_of_driver(spark))
    job = choose_snapshot(spark, replace(job, name=name, single=single), df.isStreaming)
    table = open_job_master(job)
    if isinstance(table, FileMaster) and not df.isStreaming:  # also where nothing could be held
        job = replace(job, files=table.manifest.files)
    job = job.resolved(table, options.on, options.select)
    check_collations(df.schema, job.on)
    _check_names(df, job)
    everywhere = job.tasks * cluster.executors(spark)
    no_java, shortage = partial(why_not, spark, job, table), partial(_shortage, job, table)
    setting = Setting(table, job.how, job.algorithm, everywhere, None, no_java, shortage)
    ways = affordable(options.transfer, setting)
    setting = replace(setting, hosts=probe(spark, job) if options.check else None)
    transfer = fit_budget(choose_transfer(options.transfer, setting), ways)
    partition = choose_partition(options.partition, setting)
    is_open = isinstance(master, FileMaster)  # then it keeps its own way
    if options.read == "auto" and not is_open and setting.reads_directly(transfer):
        job = replace(job, read="direct")
        table = open_job_master(job)
    log.info(
        "enrich %r: transfer=%s, partition=%s, read=%s", job.name, transfer, partition, job.read
    )
    if partition.value == "key":
        df = route_rows(df, job, everywhere)
    channel = report_channel(df)
    if transfer.value == "none":
        return by_jvm(df, job, table)
    note_enrichment(state_of(spark), job, None)
    if warning := cluster.memory_warning(spark, job.memory, job.tasks):
        warnings.warn(warning, stacklevel=3)
    by = by_rows if transfer.value == "rows" else by_keys
    return by(df, job, channel, table.schema)


def _shortage(job: Job, master: Master, way: str) -> BudgetError | None:
    """Return why a job's memory is too small for a way through Python."""
    try:
        (job.keys_only() if way == "keys" else job).choose_join(master)
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


def _job(df: DataFrame, master: Master | str | os.PathLike[str], options: EnrichOptions) -> Job:
    """Return the job as far as it does not depend on the master's columns."""
    database = for_workers(master)
    path: str | os.PathLike[str]
    if database is not None:
        path, read = f"{database.store.address}/{database.store.table}", "database"
    elif isinstance(master, FileMaster):
        path, read = master.path, master.read
    else:
        # Mapped, until the hosts have said whether they have room for its pages.
        path, read = path_of(master), "mapped" if options.read == "auto" else options.read
    check_text("name", options.name, "one")
    check_text("status", options.status, "the name of a column")
    path = os.fspath(path)
    name = options.name or PurePath(without_secrets(path)).name or "master"
    tasks = cluster.tasks_at_once(df.sparkSession) if options.tasks is None else options.tasks
    how = resolve_how(options.how)
    resolved = {
        "name": name,
        "called": name,
        "path": path if "://" in path else str(Path(path).absolute()),
        "read": read,
        "stream": arrow_schema(df.schema),
        "tasks": tasks,
        "on": {},  # these two follow from the master
        "select": (),
        "copies": Copies.of(options.localize),
        "database": database,
        "status": _status(options, how),
        "missing": OnMissing.of(options.on_missing, how),
        "earlier": _earlier(df, how),
        "files": master.manifest.files if isinstance(master, FileMaster) and master.chosen else "",
    }
    return Job(**vars(options) | resolved)


def _status(options: EnrichOptions, how: str) -> str:
    """Return the name of the status column; refuse one where all rows would have the same."""
    if options.status and how != "left":
        msg = (
            f"status={options.status!r} tells rows with a match from those without, which "
            f"how={options.how!r} does not both give; take how='left'"
        )
        raise OptionError(msg)
    return options.status or (STATUS if options.on_missing in SPLITTING else "")


def _earlier(df: DataFrame, how: str) -> tuple[str, ...]:
    """Return the status columns by which rows will be parted; such rows must stay till then."""
    marks = [mark for mark in marks_of(df.schema) if mark.splits]
    if marks and how != "left":
        msg = (
            f"how={how!r} would lose rows that enrichment {marks[-1].enrichment!r} has marked for "
            f"on_missing={marks[-1].on_missing!r}; take how='left' with on_missing='drop', or put "
            "it before that one"
        )
        raise OptionError(msg)
    return tuple(mark.column for mark in marks)
