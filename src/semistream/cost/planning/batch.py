"""What a batch join would take: the floor that a stream join of a nightly batch is held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from semistream.algorithms import choose
from semistream.cost.loop import Loop
from semistream.cost.models import Setting
from semistream.cost.queue import grouped, in_batches
from semistream.cost.unit_costs import way

if TYPE_CHECKING:
    from semistream.cost.planning.question import Question

__all__ = ["Batch", "batch_of"]

_READ = 1 << 20  # bytes that a scan reads at once


@dataclass(frozen=True)
class Batch:
    """A batch of stream rows, joined at once."""

    wanted: float
    """The share of the master's pages that its rows ask for."""
    scan: float
    """Predicted seconds to read the master once."""
    rows: float
    """Predicted seconds to match its rows and give them out, all of the master being at hand."""

    @property
    def seconds(self) -> float:
        """What a batch join takes at least: it may have to sort or to spill, too."""
        return self.scan + self.rows


def batch_of(question: Question, rows: int) -> Batch:
    """Predict what a batch of so many rows takes at least."""
    demand, master, costs = question.demand, question.spec.files, question.costs
    groups = grouped((1 - demand.absent) * demand.page_shares())
    wanted = in_batches(groups, rows).reads * rows / demand.pages
    read = costs.c_io[way(master.read, ahead=3)]
    scan = master.manifest.pages_bytes / _READ * read(_READ)
    name = question.names[0]
    _, task, plan = choose(name, question.spec, question.whole, None, {})
    setting = Setting(task, plan, demand, costs.fit(name, master.read))
    one = Loop(w_S=0.0, w_N=1.0, pages=0.0, reads=0.0, output=setting.duplicates, cache_bytes=1.0)
    each = costs.c_loop("resident", one, setting.shape, master.read)
    return Batch(min(1.0, wanted), scan, rows * each)
