"""What a machine's operations cost: counted work becomes time."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semistream.errors import OptionError

if TYPE_CHECKING:
    import os

    from semistream.planning.simulate import Work

__all__ = ["Machine"]


@dataclass(frozen=True)
class Machine:
    """Unit costs, in seconds where nothing else is said; those of rows are of one core.

    The defaults are of an NVMe disk and a server core of 2024, with rows of 120 bytes: for tests
    and for "what if". `semistream.planning.measure.measure_machine` measures the one at hand.

    Examples
    --------
    >>> round(Machine(read=0.004, bandwidth=150e6).read_seconds(131_072), 6)
    0.004874
    >>> Machine.of({"reed": 1})
    Traceback (most recent call last):
    semistream.errors.OptionError: unit cost 'reed' is not known; ... Did you mean 'read'?
    """

    read: float = 80e-6
    """Fixed cost of a read of the disk."""
    bandwidth: float = 2e9
    """Bytes a second that the disk reads at most."""
    in_flight: float = 8.0
    """Reads that the disk serves at once."""
    submit: float = 20e-6
    """Processor time of a read: the system call, the checksum."""
    run: float = 60e-6
    """Processor time of a run of neighbouring pages, read at once, that meets the window."""
    step: float = 100e-6
    """A round of a published algorithm's loop, which brings few pages."""
    chunk: float = 500e-6
    """A piece of the stream that is taken in, beside what its rows cost."""
    intake: float = 10e-9
    """A row taken in: its key encoded, its page found."""
    probe: float = 40e-9
    """A row that the cache is asked for."""
    upkeep: float = 40e-9
    """A row that a cache is kept current with: counted, staged, evicted."""
    append: float = 100e-9
    """A row that waits: appended, moved as others leave."""
    match: float = 150e-9
    """A row that its page answers."""
    lookup: float = 150e-9
    """A row looked up at once in pages that lie in memory, and put out."""
    output: float = 120e-9
    """A row that comes out."""
    spark_java: float = 1.1e-6
    """A row that Spark brings along, and its JVM looks up."""
    spark_keys: float = 1.4e-6
    """A row that Spark brings along, whose key passes through Python."""
    spark_rows: float = 1.6e-6
    """A row that Spark passes through Python as a whole."""
    spark_route: float = 0.8e-6
    """A row that Spark sends to the task of its page."""
    spark_batch: float = 0.15
    """A micro-batch, beside what its rows cost."""
    source: str = field(default="the defaults", compare=False)
    """Where these costs are from, for people."""

    def __post_init__(self) -> None:
        for cost in fields(self):
            value = getattr(self, cost.name)
            if cost.name == "source":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                msg = (
                    f"{cost.name}={value!r} is no unit cost; give seconds (or bytes/s), at least 0"
                )
                raise OptionError(msg)
        if not (self.bandwidth and self.in_flight):
            msg = "bandwidth and in_flight must be above 0: a disk that reads nothing has no rate"
            raise OptionError(msg)

    @classmethod
    def of(cls, costs: Mapping[str, Any], base: Machine | None = None) -> Machine:
        """Return ``base``, or the defaults, with these unit costs in place of its own."""
        known = {cost.name for cost in fields(cls)}
        for name in costs:
            if name not in known:
                raise OptionError.unknown("unit cost", str(name), known)
        return replace(base or cls(), **costs)

    @classmethod
    def load(cls, path: str | os.PathLike[str], base: Machine | None = None) -> Machine:
        """Read unit costs from a JSON or TOML file; those it does not name are ``base``'s."""
        file = Path(path)
        try:
            text = file.read_text()
            costs = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
        except OSError as error:
            msg = f"{file}: the machine's unit costs cannot be read: {error.strerror}"
            raise OptionError(msg) from None
        except ValueError as error:
            msg = f"{file} is no JSON or TOML file of unit costs ({error})"
            raise OptionError(msg) from None
        if not isinstance(costs, Mapping):
            msg = f"{file} has no unit costs by name; see Machine for their names"
            raise OptionError(msg)
        return cls.of({**costs, "source": str(file)}, base)

    def dump(self) -> str:
        """Return the unit costs as JSON, as `load` reads them."""
        return json.dumps(asdict(self), indent=1)

    def read_seconds(self, size: float, depth: float = 1.0) -> float:
        """Return the seconds of a read of so many bytes, with ``depth`` reads in flight."""
        transfer = size / self.bandwidth
        return float(max((self.read + transfer) / min(depth, self.in_flight), transfer))

    def seconds(self, work: Work, *, cores: int = 1, disks: int = 1, depth: int = 1) -> float:
        """Return the seconds that work takes on so many cores, with their own disks each.

        ``depth`` is how many reads a core has in flight; with more than one they go on while pages
        are matched, and the longer of both counts. 0 is a master whose pages lie in memory.
        """
        before = (
            self.intake * work.rows
            + self.probe * work.probed
            + self.upkeep * work.kept
            + self.append * work.appended
            + self.lookup * work.looked_up
            + self.output * work.out
        )
        within = self.run * work.reads + self.match * work.appended + self.step * work.steps
        # Every core takes in the same number of chunks, each of its part of the rows.
        outside = before / cores + self.chunk * work.chunks
        if not depth or not work.reads:
            return outside + within / cores
        in_flight = depth * cores / disks
        disk = work.reads * self.read_seconds(work.bytes / work.reads, in_flight) / disks
        if depth == 1:
            return outside + within / cores + disk
        return outside + max((within + self.submit * work.reads) / cores, disk)
