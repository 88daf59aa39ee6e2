"""Where a pipeline writes: each thing to a place of its own, by whatever path."""

from __future__ import annotations

import os
import posixpath
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semistream.pipeline.file.model import Pipeline

__all__ = ["taken_places"]


def taken_places(pipeline: Pipeline) -> Iterator[tuple[str, str]]:
    """Give the settings that name a place which another has already: where, and a message.

    A dimension may be that of several enrichments.
    """
    taken: dict[str, str] = {}
    for where, path in _written(pipeline):
        other = taken.setdefault(_place(path), where)
        if other != where and not (where.endswith("dimension") and other.endswith("dimension")):
            yield where, f"is the same as {other}; give it a path of its own"


def _written(pipeline: Pipeline) -> Iterator[tuple[str, str]]:
    """Give the places that a pipeline writes to: the setting, and the path."""
    if path := getattr(pipeline.sink, "path", None):
        yield "sink.path", path
    yield "checkpoint", pipeline.checkpoint
    if pipeline.splits:
        yield "quarantine.path", pipeline.quarantine
    if pipeline.waits:
        yield "waiting.path", pipeline.waiting.path
    for i, step in enumerate(pipeline.enrich):
        if step.dimension:
            yield f"enrich[{i}].dimension", step.dimension


def _place(path: str) -> str:
    """Give a path as all that lead to the same place have it.

    Examples
    --------
    >>> _place("file:///data/./sales/"), _place("/data/old/../sales"), _place("s3a://data/sales//")
    ('/data/sales', '/data/sales', 's3a://data/sales')
    """
    url = urlparse(path)
    if "://" in path and url.scheme != "file":
        return f"{url.scheme}://{url.netloc}{posixpath.normpath(url.path)}"
    return os.path.realpath(unquote(url.path) if url.scheme == "file" else path)
