"""This machine's profile: from its file, or measured quickly where there is none that holds."""

from __future__ import annotations

import os
import tempfile
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from semistream.cost.profile import Profile, default_path
from semistream.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    Say = Callable[[str, int, int], None]

__all__ = ["Current", "calibrated", "current_profile"]


class Current(NamedTuple):
    """A profile, and where it is from."""

    profile: Profile
    note: str


def current_profile(folder: Path, say: Say | None = None) -> Current:
    """Load this machine's profile; measure it, and save it, where none is there or it is doubtful.

    Parameters
    ----------
    folder
        Where to measure: best on the disk of the master.
    say
        Is told what is measured, how much of it is done, and how much there is.
    """
    path = default_path()
    if not path.exists():
        return _measured(path, folder, say, f"there was no profile at {path}")
    try:
        profile = Profile.load(path)
    except OptionError as error:
        return _measured(path, folder, say, str(error))
    doubts = profile.doubts()
    if doubts:
        return _measured(path, folder, say, f"that at {path} may not hold: {'; '.join(doubts)}")
    how = "quickly, " if profile.quick else ""
    return Current(profile, f"Unit costs: measured {how}{profile.machine['date']} ({path}).")


def _measured(path: Path, folder: Path, say: Say | None, why: str) -> Current:
    profile = calibrated(folder, quick=True, say=say)
    profile.save(path)
    text = f"Unit costs: measured quickly just now, for {why}. `semistream calibrate` takes longer"
    return Current(profile, f"{text} and is more exact.")


def calibrated(folder: Path, *, quick: bool, say: Say | None = None) -> Profile:
    """Measure unit costs in a folder of its own, beside the master where that can be written."""
    where = folder if os.access(folder, os.W_OK) else None
    calibrate = import_module("semistream.cost.calibrate").calibrate
    with tempfile.TemporaryDirectory(prefix=".semistream-", dir=where) as made:
        profile = calibrate(Path(made), quick=quick, say=say or _nothing)
    assert isinstance(profile, Profile)  # noqa: S101 - for the type checker
    return profile


def _nothing(what: str, done: int, of: int) -> None:
    """Tell no one."""
