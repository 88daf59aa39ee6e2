"""The profile of this machine: from its file, or measured quickly where none is there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from semistream.cost.profile import Profile, default_path
from semistream.errors import OptionError

__all__ = ["Current", "Say", "busy", "calibrated", "current_profile", "given", "no_one"]

Say = Callable[[str, int, int], None]
"""Is told what is being done, how much of it is, and how much there is."""


def no_one(what: str, done: int, of: int) -> None:
    """Tell no one."""


class Current(NamedTuple):
    """A profile, and where it is from."""

    profile: Profile
    note: str


def given(profile: Profile | str | os.PathLike[str]) -> Current:
    """Take a profile as it is given, of whatever machine, and say if it is not this one."""
    kind: object = profile
    if not isinstance(kind, Profile | str | os.PathLike):
        msg = f"profile={profile!r} is no profile; give the file that `semistream calibrate` made"
        raise OptionError(msg)
    loaded = profile if isinstance(profile, Profile) else _loaded(Path(profile))
    where = "" if isinstance(profile, Profile) else f" in {Path(profile)}"
    doubts = "; ".join(loaded.doubts())
    held = f", though they may not hold here: {doubts}" if doubts else ""
    return Current(loaded, f"Unit costs: as given{where}{held}.")


def _loaded(path: Path) -> Profile:
    try:
        return Profile.load(path)
    except OSError as error:
        msg = f"{path}: there is no profile ({error.strerror}); `semistream calibrate` makes one"
        raise OptionError(msg) from None


def current_profile(folder: Path, say: Say = no_one) -> Current:
    """Load this machine's profile; measure it, and save it, where none is there or it is doubtful.

    What was measured on a busy machine is not saved: it is measured again next time.

    Parameters
    ----------
    folder
        Where to measure: best on the disk of the master.
    say
        Is told how far a measurement is.
    """
    path = default_path()
    if not path.exists():
        return _measured(path, folder, say, f"there was no profile at {path}")
    try:
        profile = Profile.load(path)
    except (OptionError, OSError) as error:
        return _measured(path, folder, say, str(error))
    doubts = profile.doubts()
    if doubts:
        why = f"those in {path} may not hold: {'; '.join(doubts)}"
        return _measured(path if profile.quick else None, folder, say, why)
    how = "quickly, " if profile.quick else ""
    when = f"Unit costs: measured {how}{profile.machine['date']} ({path})."
    return Current(profile, f"{when}{busy(profile)}")


def busy(profile: Profile) -> str:
    """Say if the machine had other work while its costs were measured, which makes them too high.

    Examples
    --------
    >>> from semistream.cost.example import example_profile
    >>> from dataclasses import replace
    >>> machine = example_profile().machine | {"cores": 2, "busiest": 3.9, "load": [1, 1, 1]}
    >>> busy(replace(example_profile(), machine=machine))
    ' The machine was busy (load 3.9 on 2 cores): `semistream calibrate` it again when at rest.'
    """
    cores = int(profile.machine.get("cores") or 1)
    at_the_end = next(iter(profile.machine.get("load") or [0.0]))
    load = float(profile.machine.get("busiest", at_the_end))
    if load <= cores / 2 + 1:
        return ""
    text = f"The machine was busy (load {load:g} on {cores} cores)"
    return f" {text}: `semistream calibrate` it again when at rest."


def _measured(path: Path | None, folder: Path, say: Say, why: str) -> Current:
    """Measure quickly; keep it, unless ``path`` is None: a thorough profile is not replaced."""
    profile = calibrated(folder, quick=True, say=say)
    kept = _kept(profile, path)
    text = f"Unit costs: measured quickly just now, for {why}; {kept}. `semistream calibrate`"
    return Current(profile, f"{text} takes longer and is more exact.{busy(profile)}")


def _kept(profile: Profile, path: Path | None) -> str:
    """Save a profile that was measured quickly, if it is worth it; say whether it was."""
    if path is None:
        return "not kept, for a thorough one lies there"
    if busy(profile):
        return "not kept, for the machine was busy: the next plan measures again"
    try:
        profile.save(path)
    except OSError as error:  # a folder that cannot be written: the plan is as good without
        return f"not kept, for {path} cannot be written ({error.strerror})"
    return f"kept in {path}"


def calibrated(folder: Path, *, quick: bool, say: Say = no_one) -> Profile:
    """Measure unit costs: in this folder, or that for temporary files where it is read-only."""
    from semistream.cost.calibration.calibrate import calibrate  # noqa: PLC0415 - much code, seldom wanted

    return calibrate(folder if os.access(folder, os.W_OK) else None, quick=quick, say=say)
