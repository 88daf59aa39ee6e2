"""The display of a running pipeline: a line that is renewed, a line a batch, or JSON."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import typer

from semistream.cli.terminal import errors
from semistream.spark.lookup.outcome import COUNTED, WAITED
from semistream.units import format_bytes

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

__all__ = ["Reporter", "line_of"]


def line_of(report: dict[str, Any]) -> str:
    """Return a batch's report as a line.

    Examples
    --------
    >>> line_of({"batch": 3, "rows": 1000, "seconds": 0.5, "rows_per_second": 2000.0, "enrich": {
    ...     "products": {"rows": 1000, "matched": 950, "absent": 50, "hit_rate": 0.8}}})
    'batch 3: 1,000 rows in 0.5 s, 2,000/s | products: 950 matched, 50 absent, 80.0 % from memory'
    """
    rate = f", {report['rows_per_second']:,.0f}/s" if report["rows_per_second"] else ""
    parts = [f"batch {report['batch']}: {report['rows']:,} rows in {report['seconds']:.1f} s{rate}"]
    steps = (f"{name}: {_metrics(each)}" for name, each in report["enrich"].items())
    return " | ".join([*parts, *steps])


def _metrics(step: dict[str, Any]) -> str:
    """Return what an enrichment did; Spark alone observes less than workers report."""
    shown = [f"{step[name]:,} {name}" for name in ("matched", "absent", "rows_out") if name in step]
    unusual = ("null_keys", *COUNTED, *WAITED)
    shown += [f"{step[name]:,} {name.replace('_', ' ')}" for name in unusual if step.get(name)]
    if "hit_rate" in step:
        shown.append(f"{step['hit_rate']:.1%} from memory".replace("%", " %"))
    if "memory" in step:
        held, budget = sum(step["memory"].values()), step["budget"]
        shown.append(f"a task held {format_bytes(held)} of {format_bytes(budget)}")
    return ", ".join(shown)


class Reporter:
    """Shows the batches of a run as they end."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._rows = self._batches = 0
        self._began = time.monotonic()
        self._status = errors.status("waiting for rows") if errors.is_terminal else None

    def __enter__(self) -> Self:
        if self._status and not self._as_json:
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._status:
            self._status.stop()

    def take(self, report: dict[str, Any]) -> None:
        """Show the report of a batch."""
        self._rows += report["rows"]
        self._batches += 1
        if self._as_json:
            typer.echo(json.dumps(report))
        elif self._status:
            self._status.update(f"{self._rows:,} rows | {line_of(report)}")
        else:
            errors.print(line_of(report), highlight=False, markup=False, soft_wrap=True)

    @property
    def summary(self) -> str:
        """All batches together."""
        seconds = time.monotonic() - self._began
        return f"{self._rows:,} rows in {self._batches:,} batches, {seconds:.0f} s"
