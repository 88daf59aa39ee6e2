"""What the options of a command say of the stream that is planned for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semistream.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["check_sample", "given_only", "pairs"]


def pairs(on: Sequence[str] | None) -> dict[str, str] | None:
    """Read ``stream=master``, or one name for both; None where nothing is given.

    Examples
    --------
    >>> pairs(["item=id", "day"]), pairs([])
    ({'item': 'id', 'day': 'day'}, None)
    """
    names = (name.partition("=") for name in on or ())
    return {ours: theirs or ours for ours, _, theirs in names} or None


def given_only(**options: Any) -> dict[str, Any]:  # noqa: ANN401 - of any command
    """Leave out options that were not given: what they are then, is for others to say.

    Examples
    --------
    >>> given_only(skew=0.0, absent=None)
    {'skew': 0.0}
    """
    return {name: value for name, value in options.items() if value is not None}


def check_sample(sample: str | None, on: Sequence[str] | None, law: Mapping[str, Any]) -> None:
    """Refuse options that a sample, or that there is none, would make idle.

    Examples
    --------
    >>> check_sample("sales.csv", ["item=id"], {})
    >>> check_sample("sales.csv", None, {"stream_row": 40})
    Traceback (most recent call last):
    semistream.errors.OptionError: --stream-row beside --sample: ...
    """
    if sample is None and on:
        msg = "--on names the key of a --sample; without one it is the master's: leave it out"
        raise OptionError(msg)
    if sample is not None and law:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in law)
        msg = f"{names} beside --sample: the sample tells what the stream is like; give one of them"
        raise OptionError(msg)
