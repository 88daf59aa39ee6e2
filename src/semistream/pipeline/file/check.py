"""A pipeline against the real schemas: its stream's, and those of its masters."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

import pyarrow as pa

from semistream.algorithms import choose
from semistream.errors import BudgetError, OptionError, SchemaError, SemistreamError
from semistream.hotset import HostShare, default_root
from semistream.missing import QUARANTINED, SINCE, STAGED, OnMissing
from semistream.names import RESERVED, reserved
from semistream.pipeline.file.columns import arrange, wrong_columns
from semistream.pipeline.file.errors import PipelineError, Problem
from semistream.spec import JoinSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from semistream.arrow.keys import TypeName
    from semistream.engine.plan import Plan
    from semistream.master import Master
    from semistream.pipeline.file.models import Enrichment, Pipeline

__all__ = ["Flow", "Step", "Surroundings", "check"]


@dataclass(frozen=True)
class Surroundings:
    """Where a pipeline runs, as far as its check must know."""

    tasks: int = 1
    """How many tasks an executor runs at once; they share the memory of an enrichment."""
    open_master: Callable[[Enrichment], Master] = methodcaller("open")
    """Open the master of an enrichment."""
    leaving: Callable[[pa.Field], pa.DataType] = attrgetter("type")
    """Return the type in which a column of a master leaves the enrichment."""
    type_name: TypeName = str
    """Return the name of a type in messages."""


@dataclass(frozen=True)
class Step:
    """An enrichment that fits its stream and its master."""

    enrichment: Enrichment
    spec: JoinSpec
    plan: Plan
    """How the memory is split."""
    output: pa.Schema
    """The columns that come out."""


@dataclass(frozen=True)
class Flow:
    """What flows through a pipeline: columns and types from the source to the sink."""

    stream: pa.Schema
    steps: tuple[Step, ...]
    columns: tuple[tuple[str, str], ...]
    """The columns that reach the sink: name out of the enrichments, name in the sink."""

    @cached_property
    def enriched(self) -> pa.Schema:
        """The columns that come out of the enrichments."""
        return self.steps[-1].output if self.steps else self.stream

    @cached_property
    def output(self) -> pa.Schema:
        """The columns that reach the sink."""
        return pa.schema([self.enriched.field(old).with_name(new) for old, new in self.columns])


def check(pipeline: Pipeline, stream: pa.Schema, surroundings: Surroundings | None = None) -> Flow:
    """Check a pipeline against the schema of its stream and of its masters.

    Parameters
    ----------
    pipeline
        What the file says.
    stream
        The columns that the source gives.
    surroundings
        Where it runs; a single task if not given.

    Raises
    ------
    PipelineError
        Columns, types or budgets do not go together: every mistake, each with its line.
    """
    checker = _Checker(pipeline, surroundings or Surroundings())
    flow = checker.flow(stream)
    if checker.problems or flow is None:
        raise PipelineError(str(pipeline.path), checker.problems)
    return flow


class _Checker:
    """Follows the columns through a pipeline, and collects problems."""

    def __init__(self, pipeline: Pipeline, around: Surroundings) -> None:
        self._pipeline, self._around = pipeline, around
        self._steps: list[Step] = []
        self.problems: list[Problem] = []

    def flow(self, stream: pa.Schema) -> Flow | None:
        schema: pa.Schema | None = stream
        for i, step in enumerate(self._pipeline.enrich):
            schema = self._enrich(f"enrich[{i}]", step, schema)
        if schema is None:
            return None
        for setting, message in _taken_places(self._pipeline):
            self._wrong(setting, message)
        self._own_names(schema)
        self._quarantine(stream, schema)
        self._waiting(schema)
        columns = self._pipeline.columns
        for setting, message in wrong_columns(columns, schema.names):
            self._wrong(f"columns.{setting}", message)
        chosen = tuple(arrange(columns, schema.names))
        self._sink([new for _, new in chosen])
        return Flow(stream, tuple(self._steps), chosen)

    def _wrong(self, where: str, message: object) -> None:
        space = "" if str(message).startswith(":") else " "
        self.problems.append(Problem(self._pipeline.mark(where), f"{where}{space}{message}"))

    def _enrich(self, where: str, step: Enrichment, stream: pa.Schema | None) -> pa.Schema | None:
        """Return the columns after a step; as far as they are known where it has a mistake."""
        try:
            master = self._around.open_master(step)
        except (SemistreamError, OSError) as error:
            self._wrong(f"{where}.master", f": {error}")
            return None
        if stream is None:
            return None
        spec = self._spec(where, step, master, stream)
        if spec is None:
            return _likely(stream, master, step)
        self._defaults(f"{where}.on_missing", step, spec)
        self._surrogate(f"{where}.surrogate", step, spec)
        plan = self._plan(where, step, spec)
        fields, kept = list(spec.output), len(spec.stream)
        fields[kept:] = [each.with_type(self._around.leaving(each)) for each in fields[kept:]]
        if step.status:
            fields.append(pa.field(step.status, pa.string(), nullable=False))
        output = pa.schema(fields)
        if plan is not None:
            self._steps.append(Step(step, spec, plan, output))
        return output

    def _defaults(self, where: str, step: Enrichment, spec: JoinSpec) -> None:
        """Check the default values of a step, each by itself; and the name of its status."""
        if step.status in spec.output.names:
            place = f"{where.removesuffix('on_missing')}status"
            self._wrong(place, f"{step.status!r} is a column already; give another name")
        values = step.on_missing if isinstance(step.on_missing, Mapping) else {}
        for name, value in values.items():
            try:
                OnMissing("defaults", {name: value}).checked(
                    spec.master.schema, spec.payload, self._around.type_name
                )
            except SchemaError as error:
                self._wrong(f"{where}.{name}", f": {error}")

    def _own_names(self, enriched: pa.Schema) -> None:
        """Refuse columns whose names are for those that go with rows from step to step."""
        for name in reserved(enriched.names) if self._pipeline.by_batch else ():
            self._wrong(
                "enrich",
                f"has a column {name!r}: names that begin with {RESERVED!r} are the pipeline's "
                "own; rename it at its source, or with prefix: where it is a master's",
            )

    def _quarantine(self, stream: pa.Schema, enriched: pa.Schema) -> None:
        """Check that rows can be taken out of the stream, and brought back later."""
        pipeline = self._pipeline
        if not pipeline.splits:
            return
        for name in (name for name in enriched.names if name.lower() in QUARANTINED):
            self._wrong("quarantine", f"adds a column {name!r}, which there is; rename that")
        for name in stream.names:
            if re.search(r"[ ,;{}()\n\t=]", name):
                self._wrong("quarantine", f"is a Delta table, which takes no name as {name!r}")
        if len(self._steps) == len(pipeline.enrich):
            for where, message in _unfit(pipeline, self._steps):
                self._wrong(where, message)

    def _waiting(self, enriched: pa.Schema) -> None:
        """Check that rows can wait, and come out exactly once."""
        pipeline = self._pipeline
        if not pipeline.waits:
            return
        if SINCE in map(str.lower, enriched.names):  # Spark would put one in the other's place
            self._wrong("waiting", f"adds a column {SINCE!r}, which there is; rename that")
        if pipeline.sink.kind == "parquet":
            self._wrong(
                "sink.kind",
                "parquet can't tell which batches it has, so that rows that have waited might be "
                "lost when one is replayed; with on_missing: wait take kind: delta or postgresql",
            )
        for i, step in enumerate(pipeline.enrich):
            held = step.absent_ttl if step.on_missing == "wait" and not step.feed else None
            if held is not None and held > pipeline.waiting.delay:
                self._wrong(
                    f"enrich[{i}].absent_ttl",
                    "is longer than the delay after which rows that wait are tried again: they "
                    "would be told what is held; leave it out, or give a feed of changes",
                )

    def _surrogate(self, where: str, step: Enrichment, spec: JoinSpec) -> None:
        if not step.surrogate:
            return
        if step.surrogate not in spec.payload:
            self._wrong(where, f": {SchemaError.missing('master', step.surrogate, spec.payload)}")
        elif not pa.types.is_integer(kind := spec.master.schema.field(step.surrogate).type):
            shown = self._around.type_name(kind)
            self._wrong(where, f"{step.surrogate!r} is {shown}; new ones are whole numbers")
        if spec.master.statistics.most_duplicates > 1:
            self._wrong(where, "is of one row a key; this master has several")

    def _spec(
        self, where: str, step: Enrichment, master: Master, stream: pa.Schema
    ) -> JoinSpec | None:
        try:
            JoinSpec.resolve(
                master, stream, step.on, step.how, [], "", type_name=self._around.type_name
            )
        except (OptionError, SchemaError) as error:
            self._wrong(f"{where}.on", f": {error}")
            return None
        try:
            return JoinSpec.resolve(master, stream, step.on, step.how, step.select, step.prefix)
        except (OptionError, SchemaError) as error:
            self._wrong(f"{where}.{'prefix' if step.prefix else 'select'}", f": {error}")
            return None

    def _plan(self, where: str, step: Enrichment, spec: JoinSpec) -> Plan | None:
        share = HostShare(default_root(), step.tasks or self._around.tasks)
        try:
            return choose(step.algorithm, spec, step.memory, None, step.options, share)[2]
        except BudgetError as error:
            self._wrong(f"{where}.memory", f": {error}")
        except OptionError as error:
            self._wrong(f"{where}.options", f": {error}")
        return None

    def _sink(self, names: list[str]) -> None:
        sink = self._pipeline.sink
        wanted = {f"partition_by[{i}]": n for i, n in enumerate(getattr(sink, "partition_by", ()))}
        if key := getattr(sink, "key", None):
            wanted["key"] = key
        for setting, name in wanted.items():
            if name not in names:
                self._wrong(f"sink.{setting}", f": {SchemaError.missing('result', name, names)}")
        if sink.kind == "postgresql" and STAGED in map(str.lower, names):
            self._wrong("sink", f"numbers rows in a column {STAGED!r}, which there is; rename that")
        if names and set(names) <= set(getattr(sink, "partition_by", ())):
            self._wrong("sink.partition_by", "names every column; a file needs one of its own")


def _unfit(pipeline: Pipeline, steps: Sequence[Step]) -> Iterator[tuple[str, str]]:
    """Yield the steps that do not go with one that parts rows: where, and why.

    A row that is taken out must be the stream's own, and still there at the end.
    """
    parting = [i for i, step in enumerate(steps) if step.enrichment.splits]
    for i, step in enumerate(steps):
        how, several = step.spec.how, step.spec.master.statistics.most_duplicates > 1
        if how != "left" and any(before < i for before in parting):
            other = "how: left with on_missing: drop" if how == "inner" else "a place before it"
            yield f"enrich[{i}].how", f"{how} would lose rows that are parted before; take {other}"
        if several and pipeline.keeps_single(i):
            yield (
                f"enrich[{i}].master",
                "has several rows a key, and another enrichment parts rows that have no master "
                "row: the same row would be parted several times. Join it in a pipeline behind",
            )


def _likely(stream: pa.Schema, master: Master, step: Enrichment) -> pa.Schema:
    """Return the columns that a step with a mistake would most likely have."""
    if step.how in {"semi", "anti"}:
        return stream
    wanted = step.select if step.select is not None else master.schema.names
    fields = list(stream)
    for name in wanted:
        if name in master.schema.names and name not in master.key:
            field = master.schema.field(name)
            if step.prefix + name not in stream.names:
                fields.append(field.with_name(step.prefix + name))
    return pa.schema(fields)


def _taken_places(pipeline: Pipeline) -> Iterator[tuple[str, str]]:
    """Yield the settings that name a place which another has already: where, and a message.

    A dimension may be that of several enrichments.
    """
    written = {"sink.path": getattr(pipeline.sink, "path", ""), "checkpoint": pipeline.checkpoint}
    written["quarantine.path"] = pipeline.quarantine.path if pipeline.splits else ""
    written["waiting.path"] = pipeline.waiting.path if pipeline.waits else ""
    written |= {f"enrich[{i}].dimension": step.dimension for i, step in enumerate(pipeline.enrich)}
    taken: dict[str, str] = {}
    for where, path in written.items():
        other = taken.setdefault(_place(path), where) if path else where
        if other != where and not (where.endswith("dimension") and other.endswith("dimension")):
            yield where, f"is the same as {other}; give it a path of its own"


def _place(path: str) -> str:
    """Return a path as all that lead to the same place have it.

    Examples
    --------
    >>> _place("file:///data/./sales/"), _place("/data/old/../sales"), _place("s3a://data/sales//")
    ('/data/sales', '/data/sales', 's3a://data/sales')
    """
    url = urlparse(path)
    if "://" in path and url.scheme != "file":
        return f"{url.scheme}://{url.netloc}{posixpath.normpath(url.path)}"
    return os.path.realpath(unquote(url.path) if url.scheme == "file" else path)
