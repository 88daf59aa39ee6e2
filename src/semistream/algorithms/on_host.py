"""Plans of joins that share the memory of their host: what is warm is held once for all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from semistream.algorithms.adaptive import Adaptive
from semistream.algorithms.on_database import KeyLists
from semistream.algorithms.resident import FEW_PAGES
from semistream.algorithms.shared import SharedAdaptive
from semistream.engine.algorithm import share
from semistream.engine.plan import Task, TooSmall
from semistream.hotset.plan import Host
from semistream.hotset.sizes import share as host_share

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from semistream.engine.algorithm import Algorithm
    from semistream.engine.plan import Plan
    from semistream.hotset import HostShare
    from semistream.spec import JoinSpec

__all__ = ["plan_on_host"]

# Of the memory; the first that leaves enough for a task. Its window holds the cold rows of a
# micro-batch, which the hot set makes fewer; look-ups in mapped pages need a directory of them.
_HOST_PARTS = (13 / 16, 3 / 4, 1 / 2, 1 / 4, 1 / 8, 1 / 16)
_MAPPED_PARTS = (1 / 4, 1 / 8, 1 / 16)
_ENOUGH_READS = 8  # pages in flight of a task, and its memory is more than a few pages
_LIVE_PARTS = (3 / 5, 1 / 2, 1 / 4, 1 / 8)  # the same for a database: tasks need little


def plan_on_host(
    algorithm: type[Algorithm],
    spec: JoinSpec,
    memory: int,
    use_filter: bool | None,
    options: Mapping[str, Any],
    shared: HostShare,
) -> tuple[type[Algorithm], Task, Plan] | None:
    """Plan for joins that hold what is warm together; return None where that is not possible."""
    few = spec.master.pages <= FEW_PAGES
    if algorithm is KeyLists:
        kind: type[Algorithm] = algorithm
    elif algorithm is Adaptive and not options.get("at_once") and not few:
        kind = SharedAdaptive
    else:
        return None
    plans: list[tuple[type[Algorithm], Task, Plan]] = []
    for part in _parts(kind, spec, options):
        size, _ = host_share(memory, shared.tasks, part)
        host = Host.of(spec, shared, size)
        if host is None:
            break
        each = (memory - host.sizes.total) // shared.tasks
        task = replace(Task.of(spec, each, use_filter), host=host)
        try:
            plan = kind.plan(task, **options)
        except TooSmall:
            continue
        parts = host.sizes.components
        plans.append((kind, task, replace(plan, memory=memory, tasks=shared.tasks, host=parts)))
        if kind is KeyLists or spec.master.is_mapped or _has_reads(plan, spec):
            return plans[-1]
    small = [each for each in plans if sum(each[2].host.values()) <= memory // 4]
    return next(iter(small or plans), None)


def _has_reads(plan: Plan, spec: JoinSpec) -> bool:
    """Return whether a task has pages enough in flight: with fewer, its window is small, too."""
    return (plan.settings.buffer_pages or 1) >= min(_ENOUGH_READS, spec.master.pages)


def _parts(kind: type[Algorithm], spec: JoinSpec, options: Mapping[str, Any]) -> Iterable[float]:
    """Return the parts of the memory that the host may have, the best first."""
    if kind is not KeyLists:
        return _MAPPED_PARTS if spec.master.is_mapped else _HOST_PARTS
    return (share("cache", options["cache"]),) if "cache" in options else _LIVE_PARTS
