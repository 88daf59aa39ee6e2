"""Reading a pipeline file: every mistake in it is found before anything starts."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from semistream.errors import OptionError
from semistream.pipeline.file.ends import KafkaSink, KafkaSource
from semistream.pipeline.file.models import Enrichment, Pipeline, PipelineFile, Quarantine
from semistream.pipeline.file.positions import where
from semistream.pipeline.file.section import absolute_path
from semistream.pipeline.file.validate import read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from semistream.pipeline.file.errors import Mark
    from semistream.pipeline.file.positions import Document

__all__ = ["read_pipeline"]

# So that a replayed record can be told from another one.
_ORIGIN = ("topic", "partition", "offset")


def read_pipeline(
    path: str | os.PathLike[str], environment: Mapping[str, str] = os.environ
) -> Pipeline:
    """Read a pipeline file.

    Paths in it are relative to the file's folder.

    Raises
    ------
    PipelineError
        The file has mistakes: all of them, each with its line, the legal choices and the nearest
        right word.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "p.yaml")
    >>> _ = path.write_text('source: {kind: rate}' + chr(10) + 'sink: {kind: consol}')
    >>> read_pipeline(path)
    Traceback (most recent call last):
    semistream.pipeline.file.errors.PipelineError: ...sink.kind 'consol' is not known; ...
    """
    absolute = Path(path).absolute()
    try:
        text = absolute.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path}: the pipeline file can't be read: {error}"
        raise OptionError(msg) from None
    context = {"folder": absolute.parent}
    file, document = read_yaml(PipelineFile, str(path), text, environment, context)
    return _completed(file, absolute, _marks(document))


def _completed(file: PipelineFile, path: Path, marks: Mapping[str, Mark]) -> Pipeline:
    """Return the pipeline with names and places that the file leaves out."""
    name = file.name or path.stem
    base = getattr(file.sink, "path", "").rstrip("/") or absolute_path(name, path.parent)
    waiting, source = file.waiting, file.source
    if isinstance(source, KafkaSource) and source.metadata is None:
        metadata = _ORIGIN if isinstance(file.sink, KafkaSink) else ()
        source = replace(source, metadata=metadata)
    return Pipeline(
        path=path,
        name=name,
        source=source,
        enrich=tuple(step.patient(waiting.delay) for step in _named(file.enrich)),
        columns=file.columns,
        sink=file.sink,
        trigger=file.trigger,
        checkpoint=file.checkpoint or f"{base}.checkpoint",
        spark=file.spark,
        quarantine=Quarantine(path=file.quarantine.path or f"{base}.quarantine"),
        waiting=replace(waiting, path=waiting.path or f"{base}.waiting"),
        marks=marks,
    )


def _named(steps: Iterable[Enrichment]) -> list[Enrichment]:
    """Name enrichments without a name after their masters, each differently."""
    steps = list(steps)
    taken = {step.name for step in steps}
    named: list[Enrichment] = []
    for step in steps:
        if step.name:
            named.append(step)
            continue
        place = step.table.replace(".", "/") if step.live else step.master.rstrip("/")
        base = name = place.rpartition("/")[2]
        number = 1
        while name in taken:
            number += 1
            name = f"{base}_{number}"
        taken.add(name)
        named.append(replace(step, name=name))
    return named


def _marks(document: Document) -> dict[str, Mark]:
    marks = {where(path): place.mark for path, place in document.places.items()}
    # A single enrichment may stand without a list; checks number it as if it were in one.
    return marks | {
        f"enrich[0]{name.removeprefix('enrich')}": mark
        for name, mark in marks.items()
        if name.startswith("enrich.")
    }
