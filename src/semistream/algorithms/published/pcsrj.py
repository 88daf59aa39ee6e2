"""PCSRJ: CACHEJOINs side by side, each for its part of the key space."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from semistream.algorithms.published.cachejoin import Cachejoin
from semistream.algorithms.published.parts.side_by_side import Router
from semistream.engine.algorithm import positive
from semistream.engine.engine import Engine
from semistream.engine.plan import TooSmall, in_steps
from semistream.master.files.filter import KeyFilter

if TYPE_CHECKING:
    from semistream.engine.operator import Operator
    from semistream.engine.plan import Plan, Runtime, Task

__all__ = ["Pcsrj"]

_ROUTER = 16  # this part of the memory holds rows on their way to the nodes


class Pcsrj(Cachejoin):
    """Send each row to one of several CACHEJOINs by its key; they work at the same time.

    Parameters
    ----------
    nodes
        How many CACHEJOINs there are; each has its share of the memory. Two, as in the paper, where
        not given, but one where the budget is too small for two.
    cache
        As for CACHEJOIN.

    Notes
    -----
    From the paper: a mapper in front of CACHEJOINs that know nothing of each other, with a hash of
    the join attribute, even or odd, by which R is divided as well. Decided here: the hash is even
    or odd of the *page* on which the key lies. R is one file, sorted by key: by the parity of keys
    each page would have rows of both nodes and be read by both, by that of pages each node has
    pages of its own, as if R were divided. Nodes are threads, any number of them; the key filter's
    bytes are divided as well. Not taken over: the paper's equations, which double both w and the
    cost of the loop, so that a second node would bring nothing.

    References
    ----------
    PCSRJ, the parallelised cache-based stream relation join, as the project's text of it has it.
    """

    name = "pcsrj"
    paper = "PCSRJ: Parallelised Cache-based Stream Relation Join"
    options = frozenset({"nodes", "cache"})

    @classmethod
    def plan(cls, task: Task, *, nodes: int | None = None, **options: Any) -> Plan:  # noqa: ANN401
        """Split the budget: the router's rows, and for each node what CACHEJOIN has."""
        if nodes is not None:
            return cls._plan(task, positive("nodes", nodes), **options)
        try:
            return cls._plan(task, 2, **options)
        except TooSmall:
            return cls._plan(task, 1, **options)

    @classmethod
    def _plan(cls, task: Task, count: int, **options: Any) -> Plan:  # noqa: ANN401
        node = super().plan(_share(task, count), **options)
        parts = {name: count * size for name, size in node.components.items()}
        router = task.memory - sum(parts.values())
        rows = count * int(node.settings["window_rows"])
        plan = replace(node, memory=task.memory, components={**parts, "router": router})
        return plan.with_settings(window_rows=rows, nodes=count)

    @classmethod
    def operator(cls, task: Task, plan: Plan, runtime: Runtime) -> Operator:
        """Start the nodes, and the router before them."""
        count = int(plan.settings["nodes"])
        each = _share(task, count)
        node = super().plan(each, cache=float(plan.settings["cache_share"]))
        nodes = [Engine(each, node, Cachejoin, runtime) for _ in range(count)]
        return Router(task.spec, nodes, plan.components["router"], runtime)


def _share(task: Task, nodes: int) -> Task:
    """Give what one node has to plan for."""
    master = task.spec.master
    room = 8 * task.filter_words // nodes
    words = KeyFilter.affordable(task.filter_words, master.statistics.values, room)
    memory = in_steps((task.memory - task.memory // _ROUTER) // nodes)
    return replace(task, memory=memory, filter_words=words)
