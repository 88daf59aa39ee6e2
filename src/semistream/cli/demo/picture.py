"""One picture of a run; needs matplotlib, of the extra ``figures``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistream.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from semistream.spark.metrics.report import BatchMetrics

__all__ = ["draw"]


def draw(batches: Sequence[BatchMetrics], tasks: int, path: Path) -> None:
    """Draw rate, hit rate and memory of each micro-batch."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra, slow to import
    except ModuleNotFoundError:
        msg = "a picture needs matplotlib: pip install 'semistream[figures]'"
        raise OptionError(msg) from None

    figure = Figure(figsize=(10, 3.2), layout="constrained")
    rate, hits, memory = figure.subplots(1, 3)
    numbers = [m.batch for m in batches]
    rate.bar(numbers, [m.rows / m.seconds / 1e3 for m in batches], color="tab:blue")
    rate.set(title="thousand rows a second", xlabel="micro-batch")
    hits.plot(numbers, [100 * m.hit_rate for m in batches], marker="o", color="tab:green")
    hits.set(title="answered from memory, %", xlabel="micro-batch", ylim=(0, 102))
    held = [m.held(tasks) / 2**20 for m in batches]
    memory.plot(numbers, held, marker="o", color="tab:red", label="held")
    memory.axhline(batches[0].budget / 2**20, linestyle="--", color="black", label="budget")
    memory.set(title="memory of all tasks, MB", xlabel="micro-batch", ylim=(0, None))
    memory.legend()
    figure.savefig(path, metadata={"Date": None})
