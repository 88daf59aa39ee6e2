"""The algorithms by name: ours, `adaptive`, and those of the papers, one a file."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from semistream.algorithms.adaptive import Adaptive
from semistream.algorithms.resident import FEW_PAGES, Resident
from semistream.engine.algorithm import Algorithm
from semistream.engine.plan import Plan, Task, TooSmall
from semistream.errors import BudgetError, OptionError
from semistream.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from semistream.hotset import HostShare
    from semistream.spec import JoinSpec

__all__ = ["Algorithm", "algorithms", "choose", "register"]

_SURELY_BYTES = 1024  # who gives less is likely to mean another unit

_REGISTRY: dict[str, type[Algorithm]] = {Adaptive.name: Adaptive}  # and what users register


def _known() -> Mapping[str, type[Algorithm]]:
    """Return all algorithms by name; a join with `adaptive` loads no other."""
    from semistream.algorithms.published import PUBLISHED  # noqa: PLC0415

    return {**PUBLISHED, **_REGISTRY}


def algorithms() -> Mapping[str, str]:
    """Return the algorithms that a join can use: name → paper.

    Examples
    --------
    >>> import semistream as ss
    >>> ss.algorithms()["meshjoin"]
    'Polyzotis et al.: Meshing Streaming Updates with Persistent Data, TKDE 2008'
    """
    return MappingProxyType({name: algorithm.paper for name, algorithm in _known().items()})


def register(algorithm: type[Algorithm]) -> type[Algorithm]:
    """Make an algorithm known by its name; usable as a class decorator."""
    if algorithm.name in _known():
        msg = f"there is an algorithm {algorithm.name!r} already; give yours another name"
        raise OptionError(msg)
    _REGISTRY[algorithm.name] = algorithm
    return algorithm


def choose(
    name: str,
    spec: JoinSpec,
    memory: int,
    use_filter: bool | None,
    options: Mapping[str, Any],
    shared: HostShare | None = None,
    usable: Callable[[int], int] = int,
) -> tuple[type[Algorithm], Task, Plan]:
    """Find an algorithm and make its plan; refuse a budget that is too small with the least.

    ``usable`` gives the part of a budget that the join may use.
    """
    live = spec.master.is_live
    algorithm = _find(name, options, live)
    spec = replace(spec, master=spec.master.only(spec.payload))
    if shared is not None:
        from semistream.algorithms.on_host import plan_on_host  # noqa: PLC0415 - few joins share

        found = plan_on_host(algorithm, spec, usable(memory), use_filter, options, shared)
        if found is not None:
            return found
    tasks = shared.tasks if shared else 1

    def planned(size: int) -> tuple[Task, Plan]:
        task = Task.of(spec, usable(size) // tasks, use_filter)
        return task, algorithm.plan(task, **options)

    try:
        task, plan = planned(memory)
    except TooSmall as parts:
        raise _too_small(name, memory, _least(planned, memory), parts, live) from None
    memory = usable(memory)
    if not live and _fits_whole(task) and (shared is None or spec.master.pages <= FEW_PAGES):
        whole = Resident.plan(task)
        return Resident, task, Plan(name, memory, whole.components, whole.settings, tasks)
    return algorithm, task, replace(plan, memory=memory, tasks=tasks)


def _find(name: str, options: Mapping[str, Any], live: bool) -> type[Algorithm]:
    """Return the algorithm of this name; on a database, `adaptive` asks by lists of keys."""
    algorithm = _REGISTRY.get(str(name)) or _known().get(str(name))
    if algorithm is None:
        raise OptionError.unknown("algorithm", name, _known(), default=Adaptive.name)
    if live and name != Adaptive.name:
        msg = (
            f"algorithm={name!r} reads pages, and a table in a database has none: it is asked by "
            "lists of keys. Take 'adaptive', which does that, or build a master of files with "
            "build_master"
        )
        raise OptionError(msg)
    if live:
        from semistream.algorithms.on_database import KeyLists  # noqa: PLC0415 - few joins ask one

        algorithm = KeyLists
    for option in options:
        if option not in algorithm.options:
            msg = f"{option!r} is not an option of {name}; it has: {sorted(algorithm.options)}"
            raise OptionError(msg)
    return algorithm


def _fits_whole(task: Task) -> bool:
    """Whether the master, and all that is needed beside it, fits into the budget."""
    if task.spec.master.statistics.bytes >= 2**31:  # one Arrow array of strings ends there
        return False
    try:
        Resident.plan(task)
    except TooSmall:
        return False
    return True


def _too_small(name: str, memory: int, least: int, parts: TooSmall, live: bool) -> BudgetError:
    msg = (
        f"memory={memory:,} bytes ({format_bytes(memory)}) is too small for {name!r}; the least "
        f"that works is {least:,} bytes ({format_bytes(least)}), for a window beside {parts}."
    )
    if not live:
        msg += " Smaller pages (page_bytes= of build_master) need less."
    if memory < _SURELY_BYTES:
        msg += f" A number without a unit is bytes: was memory='{memory}GB' meant?"
    error = BudgetError(msg)
    error.least = least
    return error


def _least(planned: Callable[[int], object], memory: int) -> int:
    """Find the least budget for which there is a plan, by bisection above one that has none."""

    def possible(size: int) -> bool:
        try:
            planned(size)
        except TooSmall:
            return False
        return True

    low, high = memory, 2 * memory
    while not possible(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if possible(middle) else (middle, high)
    return high
