"""Profiles: unit costs with the machine they were measured on, kept in a file."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semistream.cost.unit_costs import UnitCosts
from semistream.errors import OptionError
from semistream.system.machine import describe
from semistream.system.user_cache import user_cache

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FORMAT", "Profile", "default_path"]

FORMAT = 2
"""What its factors are factors of changes with the models."""
_OLD = timedelta(days=90)
_SAME = ("cpu", "cores", "memory_bytes", "python", "versions")
_MEMORY = 0.05  # of it another kernel keeps more or less for itself


def default_path() -> Path:
    """Give the file of this machine's profile: that of ``SEMISTREAM_PROFILE``, or in the cache."""
    given = os.environ.get("SEMISTREAM_PROFILE")
    return Path(given) if given else user_cache() / "profile.json"


@dataclass(frozen=True)
class Profile:
    """What a machine's operations cost.

    Parameters
    ----------
    costs
        The unit costs.
    machine
        Where and when they were measured.
    quick
        Whether they were measured in seconds, on a small master.
    """

    costs: UnitCosts
    machine: Mapping[str, Any]
    quick: bool

    def save(self, path: Path) -> None:
        """Write the profile; a file that is there is replaced as a whole."""
        path.parent.mkdir(parents=True, exist_ok=True)
        values = {
            "semistream_profile": FORMAT,
            "quick": self.quick,
            "machine": dict(self.machine),
            "costs": self.costs.as_dict(),
        }
        written = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            written.write_text(json.dumps(values, indent=1))
            written.replace(path)
        finally:
            written.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> Profile:
        """Read a profile, or say what is wrong with it."""
        try:
            values = json.loads(path.read_text())
            version = values["semistream_profile"]
            if version != FORMAT:
                msg = f"{path}: format {version!r}, not {FORMAT}: run `semistream calibrate` again"
                raise OptionError(msg)
            costs = UnitCosts.from_dict(values["costs"])
            found = cls(costs, values["machine"], values["quick"])
            found.doubts()  # reads what a description of a machine must have
            int(found.machine["memory_bytes"])
            return found  # noqa: TRY300 - all of it may fail
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, OptionError):
                raise
            msg = f"{path} is no profile ({error!r}): run `semistream calibrate` again"
            raise OptionError(msg) from error

    def doubts(self, now: datetime | None = None) -> list[str]:
        """Say why this profile may not hold here: another machine, other versions, its age.

        Patches of versions, and a little more or less memory, are no reason.
        """
        here, found = describe(), []
        for name in _SAME:
            was = self.machine.get(name)
            if not _is_alike(name, was, here[name]):
                found.append(f"{name} was {was}, here it is {here[name]}")
        made = datetime.fromisoformat(str(self.machine["date"]))
        age = (now or datetime.now(UTC)) - made
        if age > _OLD:
            found.append(f"it is {age.days} days old")
        return found


def _is_alike(name: str, was: object, here: object) -> bool:
    """Tell whether a part of a machine's description is the same, as far as costs go by it.

    Examples
    --------
    >>> _is_alike("memory_bytes", 16_000, 16_500), _is_alike("memory_bytes", 16_000, 32_000)
    (True, False)
    >>> _is_alike("python", "3.12.1", "3.12.7"), _is_alike("python", "3.12.1", "3.13.0")
    (True, False)
    """
    if isinstance(was, int) and isinstance(here, int) and name == "memory_bytes":
        return abs(was - here) <= _MEMORY * here
    return _minor(was) == _minor(here) if name in {"python", "versions"} else was == here


def _minor(version: object) -> object:
    """Leave out what comes after major and minor, of a version or of several."""
    if isinstance(version, dict):
        return {name: _minor(each) for name, each in version.items()}
    return str(version).split(".")[:2]
