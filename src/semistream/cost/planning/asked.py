"""The numbers of a question to the planner."""

from __future__ import annotations

from dataclasses import dataclass

from semistream.cost.planning.rates import parse_rate
from semistream.errors import OptionError
from semistream.units import parse_bytes

__all__ = ["Asked"]


@dataclass(frozen=True)
class Asked:
    """A budget, to learn what it buys, or a rate, to learn what it needs.

    Examples
    --------
    >>> Asked.of("1MB", None)
    Asked(memory=1048576, rate=None, batch_rows=None)
    """

    memory: int | None = None
    """Bytes."""
    rate: float | None = None
    """Stream rows a second."""
    batch_rows: int | None = None
    """How many stream rows arrive together."""

    @classmethod
    def of(
        cls, memory: int | str | None, rate: float | str | None, batch_rows: int | None = None
    ) -> Asked:
        """Read what was given: exactly one of memory and rate."""
        if (memory is None) == (rate is None):
            msg = (
                f"memory={memory!r} and rate={rate!r}: give exactly one, a budget such as '64MB' "
                "to learn what it buys, or rows a second such as '200k' to learn what they need"
            )
            raise OptionError(msg)
        if batch_rows is not None and batch_rows < 1:
            msg = f"batch_rows={batch_rows!r} is not possible; give how many rows arrive together"
            raise OptionError(msg)
        size = None if memory is None else parse_bytes(memory)
        return cls(size, None if rate is None else parse_rate(rate), batch_rows)
