"""Enrichment without Python: a function in Spark's plan looks each key's master row up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyspark.sql.functions as F  # noqa: N812 - as everyone has it
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql.types import IntegralType, LongType, StringType

from semistream.errors import MasterError
from semistream.master import FileMaster
from semistream.names import unused
from semistream.spark.cluster.context_state import state_of
from semistream.spark.cluster.executors import context_of
from semistream.spark.jvm.classes import ClassesError, add_classes, java_object
from semistream.spark.jvm.description import describe_snapshot, directory_bytes, why_unreadable
from semistream.spark.lookup.outcome import Answer, apply_outcome
from semistream.spark.lookup.snapshot import batch_of_driver, may_pin, snapshot_files
from semistream.spark.lookup.transfer import master_columns
from semistream.spark.lookup.worker import open_checked
from semistream.spark.metrics.listener import note_enrichment
from semistream.spark.types import quote
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from semistream.master import Master
    from semistream.spark.cluster.context_state import ContextState
    from semistream.spark.lookup.job import Job

    Describe = Callable[[str, str], str]

__all__ = ["by_jvm", "unfit", "why_not"]


def why_not(spark: SparkSession, job: Job, master: Master) -> str:
    """Return why the JVM cannot do the look-ups of a job; empty if it can."""
    if context_of(spark) is None:
        return "over Spark Connect there is no way to Spark's JVM"
    if batch_of_driver(spark):
        return "in a foreachBatch rows are counted by Python's workers"
    return unfit(job, master) or _why_no_classes(spark)


def unfit(job: Job, master: Master) -> str:
    """Return why no JVM could do the look-ups of a job, whatever the session is."""
    if not (isinstance(master, FileMaster) and master.is_mapped):
        return f"read={job.read!r} is done in Python"
    if job.algorithm != "adaptive" or job.options:
        return "a chosen algorithm, or options of one, are for Python"
    if job.copies or "://" in job.path:
        return "copies of the master on hosts are made and found by Python"
    if not may_pin(job.path):
        return "snapshots cannot be pinned there, and Java opens their files by name"
    if job.refuses:
        return "on_missing='error' tells the keys that are missing, which Python does"
    if job.how in {"inner", "left"} and master.statistics.most_duplicates > 1:
        return "a key has several rows in this master"
    return _why_not_snapshot(job, master)


def _why_no_classes(spark: SparkSession) -> str:
    try:
        add_classes(spark)
    except ClassesError as error:
        return str(error)
    return ""


def _why_not_snapshot(job: Job, master: FileMaster) -> str:
    size = directory_bytes(master, job.select)
    too_large = f"it would hold {format_bytes(size)} of memory={format_bytes(job.memory)}"
    return why_unreadable(master, job.select) or (too_large if size > job.memory else "")


def by_jvm(df: DataFrame, job: Job, master: Master) -> DataFrame:
    """Return rows that the JVM looks up in the pages of a snapshot."""
    calls, columns = _Calls(df.sparkSession), master_columns(job, master.schema)
    state = state_of(df.sparkSession)
    if df.isStreaming:  # already now: metrics come in the order of a query's enrichments
        note_enrichment(state, job, directory_bytes(master, job.select))
    (name,) = job.on
    key = df[quote(name)]
    if isinstance(df.schema[name].dataType, IntegralType):
        key = key.cast("long")
    place_name, row_name = (unused(new, df.columns) for new in ("__place", "__row"))
    snapshot, place = calls.snapshot(_description_of(state, job)), F.col(place_name)
    rows = df.withColumn(place_name, calls.lookup(job.name, "find", LongType(), [snapshot, key]))
    matched = F.coalesce(place, F.lit(-1)) >= 0
    if not columns:
        return apply_outcome(rows, job, Answer(df.columns, matched, {}))
    row = calls.lookup(job.name, "row", columns, [snapshot, place])
    values = {field: F.col(row_name)[field.name] for field in columns}
    return apply_outcome(rows, job, Answer(df.columns, matched, values, {row_name: row}))


def _description_of(state: ContextState, job: Job) -> Describe:
    """Return a function that describes the snapshot which a micro-batch of a query reads.

    Both are empty outside of streams. Spark asks several times while it plans a micro-batch, and
    when it plans a run of another DataFrame: so its snapshot is held on.
    """
    last: dict[str, str] = {}  # files → description; queries of one DataFrame may ask side by side

    def describe(query: str, batch: str) -> str:
        of = (query, batch) if query and batch else None
        if of and not snapshot_files(job, of):
            # Asked twice it might return two, and a place in one be taken for one in the other.
            msg = f"{job.shown}: snapshots cannot be pinned there any more; start the query again"
            raise MasterError(msg)
        master = open_checked(job, of)
        text = last.get(master.manifest.files)
        if text is None:
            if why := _why_not_snapshot(job, master):
                msg = (
                    f"{job.shown}: since the query {job.name!r} was started the master has changed "
                    f"so that Java cannot read it ({why}); start the query again"
                )
                raise MasterError(msg)
            if of:
                note_enrichment(state, job, directory_bytes(master, job.select))
            text = describe_snapshot(master, job.select)
            last.clear()
            last[master.manifest.files] = text
        return text

    return describe


class _Calls:
    """Puts calls of Java methods into the plans of a session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - the one way to Java

    def snapshot(self, describe: Describe) -> Column:
        """Return what stands for the snapshot: a constant, computed whenever Spark plans a run."""
        ensure_callback_server_started(self._gateway)  # type: ignore[no-untyped-call]
        snapshots = java_object(self._spark, "Snapshots", _Callback(describe))
        return self._call(snapshots, "current", StringType(), [], constant=True)

    def lookup(self, name: str, method: str, kind: DataType, arguments: Sequence[Column]) -> Column:
        """Return what a look-up returns, one of its own: it caches what it was last called with.

        It counts as nondeterministic, so that Spark does not compute it twice where it is used
        twice.
        """
        target = java_object(self._spark, "Lookup", name)
        return self._call(target, method, kind, arguments, constant=False)

    def _call(
        self,
        target: Any,  # noqa: ANN401
        method: str,
        kind: DataType,
        arguments: Sequence[Column],
        constant: bool,
    ) -> Column:
        """Return what a method returns of an object that travels with the plan."""
        from pyspark.sql.classic.column import Column as Classic  # noqa: PLC0415 - not over Connect

        sql = self._gateway.jvm.org.apache.spark.sql
        expressions, columns = sql.catalyst.expressions, sql.classic.ExpressionUtils
        inputs = [columns.expression(argument._jc) for argument in arguments]  # noqa: SLF001
        literal = expressions.Literal.fromObject(target)
        result = self._spark._jsparkSession.parseDataType(kind.json())  # noqa: SLF001
        invoke = expressions.objects.Invoke(
            literal, method, result, self._seq(inputs), self._seq([]), True, True, constant
        )
        column: Column = Classic(columns.column(invoke))
        return column

    def _seq(self, items: list[Any]) -> Any:  # noqa: ANN401
        return self._gateway.jvm.PythonUtils.toSeq(items)


class _Callback:
    """A function of the driver's Python that Java calls."""

    class Java:
        """How Py4J knows it."""

        implements = ("java.util.function.BiFunction",)

    def __init__(self, describe: Describe) -> None:
        self._describe = describe

    def apply(self, query: str | None, batch: str | None) -> str:
        """Return the description for a micro-batch of a query."""
        return self._describe(query or "", batch or "")
