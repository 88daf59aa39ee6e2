"""What a checkpoint belongs to: a note beside Spark's own files, compared at every start.

Spark itself goes on from any checkpoint, also with another source, sink or master behind it; what
then comes out is wrong in silence. The note is ``semistream.json`` in the checkpoint's folder.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from semistream.errors import SemistreamError
from semistream.master.place import hide_secrets, without_secrets
from semistream.pipeline.checkpoint.write_once import files_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from semistream.pipeline import Pipeline
    from semistream.pipeline.file.check import Flow
    from semistream.pipeline.file.ends import Sink, Source

__all__ = ["CheckpointError", "claim", "parse_note", "query_of", "verify"]

NOTE = "semistream.json"
_KEYS = frozenset({"id", "name", "source", "sink", "masters", "output"})


class CheckpointError(SemistreamError, ValueError):
    """A checkpoint belongs to something else than the pipeline that would go on from it."""


def claim(pipeline: Pipeline, flow: Flow, spark: SparkSession) -> str:
    """Check that the checkpoint is this pipeline's, note it there, and return the query's id.

    Of two starts at once, both go on with the note of whoever wrote first.

    Raises
    ------
    CheckpointError
        It is another's, or what it was begun with has changed.
    """
    before = verify(pipeline, flow, spark)
    if before is None:
        note = {"format": 1, "id": str(uuid4()), "name": pipeline.name, **_facts(pipeline, flow)}
        text = json.dumps(hide_secrets(note), indent=2)
        files_in(pipeline.checkpoint, spark).write_first(NOTE, text)
        before = verify(pipeline, flow, spark) or note
    return str(before["id"])


def verify(pipeline: Pipeline, flow: Flow, spark: SparkSession) -> Mapping[str, Any] | None:
    """Check that the checkpoint is this pipeline's; return its note, or None if it is new."""
    where = without_secrets(pipeline.checkpoint)
    before = _note(pipeline, spark)
    if before is None:
        if {"offsets", "metadata"} & {*files_in(pipeline.checkpoint, spark).names()}:
            msg = (
                f"the checkpoint {where} was begun by another program than "
                "semistream run; choose another folder, as checkpoint: …"
            )
            raise CheckpointError(msg)
        return None
    now = json.loads(json.dumps(_facts(pipeline, flow)))
    changes = list(_changes(hide_secrets(before), hide_secrets(now)))
    if changes:
        whose = f" of pipeline {before['name']!r}" if before["name"] != pipeline.name else ""
        msg = (
            f"the checkpoint {where}{whose} belongs to a different configuration and cannot be "
            f"resumed: {'; '.join(changes)}. Bring back what has changed, or start anew with "
            "another checkpoint and another place in the sink."
        )
        raise CheckpointError(msg)
    return before


def query_of(pipeline: Pipeline, spark: SparkSession) -> str | None:
    """Return the id of the query that a pipeline's checkpoint was begun by; None if it is new."""
    note = _note(pipeline, spark)
    return None if note is None else str(note["id"])


def _note(pipeline: Pipeline, spark: SparkSession) -> Mapping[str, Any] | None:
    text = files_in(pipeline.checkpoint, spark).read(NOTE)
    return None if text is None else parse_note(text, f"{pipeline.checkpoint}/{NOTE}", _KEYS)


def parse_note(text: str, path: str, keys: AbstractSet[str]) -> dict[str, Any]:
    """Return what a note says.

    Raises
    ------
    CheckpointError
        It is damaged: no JSON object, or one that lacks some of ``keys``.
    """
    try:
        note = json.loads(text)
    except ValueError:
        note = None
    if isinstance(note, dict) and keys <= note.keys():
        return note
    msg = (
        f"the note {without_secrets(path)} is damaged ({len(text)} characters): without it nobody "
        "knows what the sink has of this checkpoint's batches. Bring it back from a backup, or "
        "start anew with another checkpoint and another place in the sink."
    )
    raise CheckpointError(msg)


def _facts(pipeline: Pipeline, flow: Flow) -> dict[str, Any]:
    """Return what must stay the same for a query to go on."""
    return {
        "source": _identity(pipeline.source),
        "sink": _identity(pipeline.sink),
        "masters": [
            {
                "name": step.enrichment.name,
                "path": step.enrichment.master,
                "key": list(step.spec.master.key),
                # Only those that the join takes must stay as they are.
                "columns": _types(
                    step.spec.master.schema.field(name)
                    for name in step.spec.master.schema.names
                    if name in {*step.spec.master.key, *step.spec.payload}
                ),
            }
            for step in flow.steps
        ],
        "output": _types(flow.output),
        "ways": dict(_ways(pipeline)),
    }


def _ways(pipeline: Pipeline) -> Iterator[tuple[str, Any]]:
    """Return the settings that say where rows go which have no master row; none if to the sink.

    Under others a replayed batch would split its rows otherwise than the tables that have it.
    """
    for i, step in enumerate(pipeline.enrich):
        for name in ("surrogate", "dimension", *(["on_missing"] if step.splits else [])):
            if given := getattr(step, name):
                yield f"enrich[{i}].{name}", given
    if pipeline.splits:
        yield "quarantine.path", pipeline.quarantine.path
    if pipeline.waits:
        yield from ((f"waiting.{name}", given) for name, given in vars(pipeline.waiting).items())


def _identity(end: Source | Sink) -> dict[str, Any]:
    return {"kind": end.kind, **{name: getattr(end, name) for name in end.identity}}


def _types(fields: Iterable[pa.Field]) -> dict[str, str]:
    return {field.name: str(field.type) for field in fields}


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for end in ("source", "sink"):
        for name in {**before[end], **now[end]}:
            was, is_ = before[end].get(name), now[end].get(name)
            if was != is_:
                yield f"its {end}'s {name} was {was!r} and is {is_!r} now"
    if len(before["masters"]) != len(now["masters"]):
        yield f"it had {len(before['masters'])} enrichments and has {len(now['masters'])} now"
    ways = before.get("ways", {})
    for name in {**ways, **now["ways"]}:
        was, is_ = ways.get(name), now["ways"].get(name)
        if was != is_:
            yield f"{name}, which says where rows go, was {was!r} and is {is_!r} now"
    masters = list(zip(before["masters"], now["masters"], strict=False))
    rebuilt = [change for was, is_ in masters for change in _master_changes(was, is_)]
    yield from rebuilt
    if not rebuilt and before["output"] != now["output"]:
        changed = _column_changes(before["output"], now["output"])
        yield f"the sink's columns have changed: {', '.join(changed) or 'their order'}"


def _master_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    what = f"the master {now['path']} has been rebuilt with another schema since"
    if before["key"] != now["key"]:
        yield f"{what}: its key was {before['key']} and is {now['key']} now"
    changed = list(_column_changes(before["columns"], now["columns"]))
    if changed:
        yield f"{what}: {', '.join(changed)}"


def _column_changes(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Return how columns differ.

    Examples
    --------
    >>> list(_column_changes({"a": "int64", "b": "double"}, {"a": "string", "c": "double"}))
    ["column 'a' was int64 and is string now", "column 'b' is gone", "column 'c' is new"]
    """
    for name in {**before, **now}:
        if name not in now:
            yield f"column {name!r} is gone"
        elif name not in before:
            yield f"column {name!r} is new"
        elif before[name] != now[name]:
            yield f"column {name!r} was {before[name]} and is {now[name]} now"
