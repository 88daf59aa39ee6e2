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
    from semistream.pipeline.file.ends import Sink
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
    """Check a pipeline against the schemas of its stream and of its masters.

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
        pipeline, columns = self._pipeline, self._pipeline.columns
        chosen = tuple(arrange(columns, schema.names))
        problems = [*_taken_places(pipeline), *_wrong_names(pipeline, stream, schema)]
        problems += _wrong_waits(pipeline) if pipeline.waits else ()
        if pipeline.splits and len(self._steps) == len(pipeline.enrich):
            problems += _wrong_order(pipeline, self._steps)
        problems += [(f"columns.{key}", why) for key, why in wrong_columns(columns, schema.names)]
        problems += _wrong_sink(pipeline.sink, [new for _, new in chosen])
        for where, message in problems:
            self._wrong(where, message)
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
        for key, message in _wrong_values(step, spec, self._around.type_name):
            self._wrong(f"{where}.{key}", message)
        fields, kept = list(spec.output), len(spec.stream)
        fields[kept:] = [each.with_type(self._around.leaving(each)) for each in fields[kept:]]
        if step.status:
            fields.append(pa.field(step.status, pa.string(), nullable=False))
        output = pa.schema(fields)
        share = HostShare(default_root(), step.tasks or self._around.tasks)
        try:
            plan = choose(step.algorithm, spec, step.memory, None, step.options, share)[2]
            self._steps.append(Step(step, spec, plan, output))
        except BudgetError as error:
            self._wrong(f"{where}.memory", f": {error}")
        except OptionError as error:
            self._wrong(f"{where}.options", f": {error}")
        return output

    def _spec(
        self, where: str, step: Enrichment, master: Master, stream: pa.Schema
    ) -> JoinSpec | None:
        key = "on"
        try:
            names = self._around.type_name
            JoinSpec.resolve(master, stream, step.on, step.how, [], "", type_name=names)
            key = "prefix" if step.prefix else "select"
            return JoinSpec.resolve(master, stream, step.on, step.how, step.select, step.prefix)
        except (OptionError, SchemaError) as error:
            self._wrong(f"{where}.{key}", f": {error}")
            return None


def _wrong_values(
    step: Enrichment, spec: JoinSpec, type_name: TypeName
) -> Iterator[tuple[str, str]]:
    """Yield the settings that do not go with the columns: each default value, status, surrogate."""
    schema, name = spec.master.schema, step.surrogate
    if step.status in spec.output.names:
        yield "status", f"{step.status!r} is a column already; give another name"
    for column, value in step.on_missing.items() if isinstance(step.on_missing, Mapping) else ():
        try:
            OnMissing("defaults", {column: value}).checked(schema, spec.payload, type_name)
        except SchemaError as error:
            yield f"on_missing.{column}", f": {error}"
    if name and name not in spec.payload:
        yield "surrogate", f": {SchemaError.missing('master', name, spec.payload)}"
    elif name and not pa.types.is_integer(kind := schema.field(name).type):
        yield "surrogate", f"{name!r} is {type_name(kind)}; new ones are whole numbers"
    if name and spec.master.statistics.most_duplicates > 1:
        yield "surrogate", "is of one row a key; this master has several"


def _wrong_names(
    pipeline: Pipeline, stream: pa.Schema, enriched: pa.Schema
) -> Iterator[tuple[str, str]]:
    """Yield the columns that a pipeline would overwrite, or cannot write to its tables."""
    for name in reserved(enriched.names) if pipeline.by_batch else ():
        yield (
            "enrich",
            f"has a column {name!r}: names that begin with {RESERVED!r} are the pipeline's "
            "own; rename it at its source, or with prefix: where it is a master's",
        )
    for name in enriched.names if pipeline.splits else ():
        if name.lower() in QUARANTINED:
            yield "quarantine", f"adds a column {name!r}, which there is; rename that"
    for name in stream.names if pipeline.splits else ():
        if re.search(r"[ ,;{}()\n\t=]", name):
            yield "quarantine", f"is a Delta table, which takes no name as {name!r}"
    # Spark would put one in the other's place.
    if pipeline.waits and SINCE in map(str.lower, enriched.names):
        yield "waiting", f"adds a column {SINCE!r}, which there is; rename that"


def _wrong_waits(pipeline: Pipeline) -> Iterator[tuple[str, str]]:
    """Yield why rows could not wait, and come out exactly once."""
    if pipeline.sink.kind == "parquet":
        yield (
            "sink.kind",
            "parquet can't tell which batches it has, so that rows that have waited might be "
            "lost when one is replayed; with on_missing: wait take kind: delta or postgresql",
        )
    for i, step in enumerate(pipeline.enrich):
        held = step.absent_ttl if step.on_missing == "wait" and not step.feed else None
        if held is not None and held > pipeline.waiting.delay:
            yield (
                f"enrich[{i}].absent_ttl",
                "is longer than the delay after which rows that wait are tried again: they "
                "would be told what is held; leave it out, or give a feed of changes",
            )


def _wrong_order(pipeline: Pipeline, steps: Sequence[Step]) -> Iterator[tuple[str, str]]:
    """Yield the steps that do not go with one that parts rows.

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


def _wrong_sink(sink: Sink, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield what a sink cannot do with the columns that reach it."""
    parts = getattr(sink, "partition_by", ())
    wanted = {f"partition_by[{i}]": name for i, name in enumerate(parts)}
    if key := getattr(sink, "key", None):
        wanted["key"] = key
    for setting, name in wanted.items():
        if name not in names:
            yield f"sink.{setting}", f": {SchemaError.missing('result', name, names)}"
    if sink.kind == "postgresql" and STAGED in map(str.lower, names):
        yield "sink", f"numbers rows in a column {STAGED!r}, which there is; rename that"
    if names and set(names) <= set(parts):
        yield "sink.partition_by", "names every column; a file needs one of its own"


def _likely(stream: pa.Schema, master: Master, step: Enrichment) -> pa.Schema:
    """Return the columns that a step with a mistake would most likely have."""
    if step.how in {"semi", "anti"}:
        return stream
    wanted = set(master.schema.names if step.select is None else step.select) - set(master.key)
    columns = [each for each in master.schema if each.name in wanted]
    named = [each.with_name(step.prefix + each.name) for each in columns]
    return pa.schema([*stream, *(each for each in named if each.name not in stream.names)])


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
