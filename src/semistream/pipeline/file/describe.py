"""What a checked pipeline will do, in lines for people and as JSON for programs."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from semistream.master.place import hide_secrets, without_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from semistream.pipeline.file.check import Flow, Step
    from semistream.pipeline.file.columns import Columns
    from semistream.pipeline.file.models import Pipeline
    from semistream.pipeline.file.section import Section

__all__ = ["as_dict", "as_text"]

_HIDDEN = {"password", "user", "options", "schema"}


def as_dict(pipeline: Pipeline, flow: Flow) -> dict[str, Any]:
    """Return the plan of a pipeline as plain values; secrets and options are left out."""
    plan = {
        "name": pipeline.name,
        "source": {**_settings(pipeline.source), "columns": _types(flow.stream)},
        "enrich": [_step(step) for step in flow.steps],
        "columns": [{"from": old, "to": new} for old, new in flow.columns],
        "sink": {**_settings(pipeline.sink), "columns": _types(flow.output)},
        "quarantine": pipeline.quarantine.path if pipeline.splits else None,
        "waiting": _settings(pipeline.waiting) if pipeline.waits else None,
        "trigger": pipeline.trigger,
        "checkpoint": pipeline.checkpoint,
    }
    return dict(hide_secrets(plan))


def _settings(section: Section) -> dict[str, Any]:
    given = {each.name: getattr(section, each.name) for each in fields(section)}
    return {
        name: value
        for name, value in {"kind": "", **given}.items()
        if name == "kind" or (name not in _HIDDEN and value not in (None, (), ""))
    }


def _types(schema: pa.Schema) -> dict[str, str]:
    return {field.name: str(field.type) for field in schema}


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in _types(schema).items())


def _step(step: Step) -> dict[str, Any]:
    spec, master = step.spec, step.spec.master
    return {
        "name": step.enrichment.name,
        "master": step.enrichment.master,
        "master_rows": master.rows,
        "how": spec.how,
        "on": dict(zip(spec.stream_keys, master.key, strict=True)),
        "select": list(spec.payload),
        "prefix": spec.prefix,
        "on_missing": step.enrichment.on_missing,
        "surrogate": step.enrichment.surrogate or None,
        "dimension": step.enrichment.dimension or None,
        "memory": step.enrichment.memory,
        "plan": {name: getattr(step.plan, name) for name in ("algorithm", "memory", "tasks")}
        | {name: dict(getattr(step.plan, name)) for name in ("components", "host", "settings")},
    }


def as_text(pipeline: Pipeline, flow: Flow) -> str:
    """Return the plan of a pipeline in lines."""
    return "\n".join(f"{what:<11}{without_secrets(line)}" for what, line in _lines(pipeline, flow))


def _lines(pipeline: Pipeline, flow: Flow) -> Iterator[tuple[str, str]]:
    yield "pipeline", f"{pipeline.name} ({pipeline.path})"
    yield "source", _one_line(pipeline.source)
    yield "", _columns(flow.stream)
    for step in flow.steps:
        yield from _step_lines(step)
    if choices := _choices(pipeline.columns):
        yield "columns", choices
    yield "sink", _one_line(pipeline.sink)
    yield "", _columns(flow.output)
    if pipeline.splits:
        yield "quarantine", pipeline.quarantine.path
    if pipeline.waits:
        waiting = pipeline.waiting
        times = f"{waiting.grace:g} s, then {waiting.then}"
        yield "waiting", f"{waiting.path}, for {times}; tried every {waiting.delay:g} s"
    yield "trigger", pipeline.trigger or "a batch when the one before has ended"
    yield "checkpoint", pipeline.checkpoint


def _one_line(section: Section) -> str:
    parts = []
    for name, value in _settings(section).items():
        shown = f"{value:,}" if type(value) is int else value
        shown = "+".join(map(str, value)) if isinstance(value, tuple) else shown
        parts.append(str(shown) if name == "kind" else f"{name} {shown}")
    return ", ".join(parts)


def _step_lines(step: Step) -> Iterator[tuple[str, str]]:
    spec, master, plan = step.spec, step.spec.master, step.plan
    pairs = zip(spec.stream_keys, master.key, strict=True)
    on = ", ".join(ours if ours == theirs else f"{ours} = {theirs}" for ours, theirs in pairs)
    yield (
        "enrich",
        f"{step.enrichment.name}: {spec.how} join on {on} with {step.enrichment.master} "
        f"({master.rows:,} rows of {master.row_bytes:.0f} B)",
    )
    if spec.payload:
        yield "", "adds " + ", ".join(f"{spec.prefix}{name}" for name in spec.payload)
    if missing := step.enrichment.on_missing:
        if not isinstance(missing, str):
            missing = "default values " + ", ".join(f"{name} {v!r}" for name, v in missing.items())
        yield "", f"rows without a master row: {missing}"
    if step.enrichment.surrogate:
        yield "", f"new keys become members of {step.enrichment.dimension}"
    for line in str(plan).splitlines():
        yield "", line


def _choices(columns: Columns) -> str:
    parts = [f"{old} replaced by {new}" for old, new in columns.replace.items()]
    parts += [f"without {', '.join(columns.drop)}"] if columns.drop else []
    parts += [f"only {', '.join(columns.keep)}"] if columns.keep is not None else []
    parts += [f"{old} renamed {new}" for old, new in columns.rename.items()]
    return "; ".join(parts)
