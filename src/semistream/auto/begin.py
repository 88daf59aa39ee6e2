"""How an auto join begins: with a pilot, or, where there is nothing to choose, as `adaptive`."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semistream.algorithms import AUTO, choose
from semistream.auto.choice import DEFAULT, Choice, Planner, Room
from semistream.auto.operator import Auto
from semistream.auto.pilot import Pilot
from semistream.auto.sample import Sample
from semistream.cost.profile import Profile, default_path
from semistream.errors import BudgetError, OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from semistream.auto.pilot import Deciding
    from semistream.host import HostShare
    from semistream.operator import Operator
    from semistream.plan import Plan
    from semistream.spec import JoinSpec

__all__ = ["started"]

log = logging.getLogger("semistream")

_PART = 256  # of the memory is the sample's: some thousand keys tell a skew to the second digit
_LEAST_ROWS, _MOST_ROWS = 1 << 10, 1 << 16  # of a sample
_CODE = 8  # bytes
_ESTIMATE = (
    448 << 10
)  # bytes that an estimate and its predictions take, beside copies of the sample
_COPIES, _A_PAGE = 4, 32  # of the sample; bytes for each page of the master
_MOST_ASIDE = 16  # this part of the memory at most: more costs what a better choice could bring


def started(
    spec: JoinSpec,
    memory: int,
    use_filter: bool | None,
    options: Mapping[str, Any],
    shared: HostShare | None,
    clock: Callable[[], float],
    max_wait: float | None,
) -> tuple[Plan, Operator]:
    """Start an auto join; the log says what it begins with, and why."""
    kind, task, plan = choose(AUTO, spec, memory, use_filter, options, shared)
    rows = min(_MOST_ROWS, memory // _PART // _CODE)
    aside = {"sample": rows * _CODE, "estimate": _estimate_bytes(rows, spec.master.pages)}
    room = Room(spec, max(1, memory - sum(aside.values())), use_filter)
    planner = _no_choice(plan, room, rows, shared) or _planner(room, options.get("profile"))
    if isinstance(planner, str):
        log.info("auto is %s: %s", DEFAULT, planner)
        plan = plan.with_settings(chosen=planner)
        return plan, kind.operator(task, plan, clock, max_wait)
    first = Choice(why=f"until {rows:,} rows are seen")
    pilot = _pilot(planner, rows, first)
    return plan, Auto(room, pilot, first, clock, max_wait, aside["estimate"])


def _estimate_bytes(rows: int, pages: int) -> int:
    """Give what a decision takes for a moment, while the join rests."""
    return _ESTIMATE + _COPIES * rows * _CODE + _A_PAGE * pages


def _planner(room: Room, given: object) -> Planner | str:
    """Give what chooses by the costs of a profile, or say why there are none."""
    profile = _profile(given)
    if isinstance(profile, str):
        return profile
    planner = Planner(room, profile.costs)
    if planner.knows(DEFAULT):
        return planner
    read = room.spec.master.read
    return f"the profile has nothing on {read} reads; run `semistream calibrate` again"


def _pilot(planner: Planner, rows: int, first: Choice) -> Deciding:
    return Pilot(planner, Sample(planner.room.spec, rows), first)


def _no_choice(plan: Plan, room: Room, rows: int, shared: HostShare | None) -> str:
    """Say why there is nothing to choose, if there is not."""
    if shared is not None and room.spec.master.read != "database":
        return "joins that share their host's memory hold together what is warm, and end soon"
    if room.spec.master.read == "database":
        return "a database is asked by lists of keys, which no other does"
    if plan.settings.get("resident"):
        return "the budget holds the whole master, whatever the algorithm"
    if room.spec.master.read == "mapped":
        return "on mapped reads it alone looks rows up in pages that lie in memory"
    aside = rows * _CODE + _estimate_bytes(rows, room.spec.master.pages)
    if rows < _LEAST_ROWS or aside * _MOST_ASIDE > room.memory + aside:
        return "the budget is too small for a sample of the stream, and what is made of it"
    try:
        room.plan(DEFAULT, {})
    except BudgetError:
        return "the budget has no room for a sample of the stream"
    return ""


def _profile(given: object) -> Profile | str:
    """Give what operations cost on this machine, or say why that is not known."""
    if isinstance(given, Profile):
        return given
    if given is not None:
        profile = _given(given)
        if doubts := profile.doubts():
            log.warning("auto: the profile given may not hold here: %s", "; ".join(doubts))
        return profile
    path = default_path()
    if not path.exists():
        return "there is no profile of this machine; `semistream calibrate` makes one"
    try:
        profile = Profile.load(path)
    except (OptionError, OSError) as error:
        return str(error)
    if doubts := profile.doubts():
        return f"{path} may not hold ({'; '.join(doubts)}); run `semistream calibrate` again"
    return profile


def _given(path: object) -> Profile:
    if not isinstance(path, (str, os.PathLike)):
        msg = f"profile={path!r} is not possible; give a Profile, or the path of one"
        raise OptionError(msg)
    if not Path(path).is_file():
        msg = f"profile={str(path)!r} is no file; `semistream calibrate` makes one"
        raise OptionError(msg)
    return Profile.load(Path(path))
