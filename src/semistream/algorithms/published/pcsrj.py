"""PCSRJ: CACHEJOINs side by side, each for its part of the key space."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from semistream.algorithms.published.cachejoin import Cachejoin, CachejoinSettings
from semistream.algorithms.published.parts.side_by_side import Router
from semistream.engine.algorithm import positive
from semistream.engine.engine import Engine
from semistream.engine.plan import Components, TooSmall, in_steps
from semistream.master.files.filter import KeyFilter

if TYPE_CHECKING:
    from semistream.engine.operator import Operator
    from semistream.engine.plan import Plan, Runtime, Task

__all__ = ["Pcsrj"]

_ROUTER = 16  # this part of the memory holds rows on their way to the nodes


@dataclass(frozen=True)
class PcsrjSettings(CachejoinSettings):
    """How many CACHEJOINs there are."""

    nodes: int = 0


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
        assert isinstance(node.settings, CachejoinSettings)  # noqa: S101 - for the type checker
        parts = Components(**{name: count * size for name, size in node.components.items()})
        parts = replace(parts, router=task.memory - parts.total)
        rows, part = count * (node.settings.window_rows or 0), node.settings.cache_share
        settings = PcsrjSettings(window_rows=rows, cache_share=part, nodes=count)
        return replace(node, memory=task.memory, components=parts, settings=settings)

    @classmethod
    def operator(cls, task: Task, plan: Plan, runtime: Runtime) -> Operator:
        """Start the nodes, and the router before them."""
        settings = plan.settings
        assert isinstance(settings, PcsrjSettings)  # noqa: S101 - for the type checker
        each = _share(task, settings.nodes)
        node = super().plan(each, cache=settings.cache_share)
        nodes = [Engine(each, node, Cachejoin, runtime) for _ in range(settings.nodes)]
        return Router(task.spec, nodes, plan.components.router, runtime)


def _share(task: Task, nodes: int) -> Task:
    """Return what one node has to plan for."""
    master = task.spec.master
    room = 8 * task.filter_words // nodes
    words = KeyFilter.affordable(task.filter_words, master.statistics.values, room)
    memory = in_steps((task.memory - task.memory // _ROUTER) // nodes)
    return replace(task, memory=memory, filter_words=words)
