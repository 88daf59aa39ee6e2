"""Measuring where the page cache can't help: in a memory cgroup of the budget and a constant.

Each sample is taken in a process of its own, started inside the group. It first does all that any
program would do (imports, stream batches, compiled code) and says what memory it has; only then is
the limit set, to that plus budget plus slack, and the master's pages are dropped from the cache.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pyarrow as pa

from benchmarks.engine.cgroup import MemoryGroup, memory_group
from benchmarks.engine.matrix import SLOW
from benchmarks.engine.workload import Feed, Workload
from benchmarks.harness.claims import candidate, versus
from benchmarks.harness.command import Benchmark, Grid, Job, option
from benchmarks.harness.memory import anonymous_bytes, resident_bytes
from benchmarks.harness.record import Record
from benchmarks.harness.run import Run, one_thread
from benchmarks.harness.samples import rounded, thousands
from benchmarks.harness.table import Sheet
from semistream.algorithms import algorithms
from semistream.errors import SemistreamError
from semistream.join import Join
from semistream.master import open_master
from semistream.units import format_bytes, parse_bytes

_LONGEST = 60  # seconds for an answer: a process that only swaps pages in and out is given up
_MOST_LEFT = 0.01  # of the pages, in the cache when the clock starts
# The shell moves itself into the group and becomes the process: nothing is charged elsewhere.
_ENTER = 'echo $$ > "$0" && exec "$@"'


@dataclass(frozen=True)
class ConfinedGrid(Grid):
    """Algorithms and budgets; each sample has a process of its own."""

    algorithms: tuple[str, ...] = option(
        tuple(name for name in algorithms() if name not in SLOW),
        "Only this algorithm.",
        "algorithm",
        known=algorithms(),
    )
    rows: int = option(2_000_000, "Rows of the master, R.")
    shares: tuple[float, ...] = option((0.05, 0.10), "A budget, as a share of R.", "share")
    exponent: float = 1.0
    seconds: float = option(0.5, "Seconds per sample.")
    rounds: int = option(3, "The number of samples.")
    slack: int = option(
        16 << 20,  # output under way, allocators, page tables
        "Memory beyond the budget and what the process itself needs.",
        read=parse_bytes,
    )
    page_bytes: str = "128KB"

    @property
    def steps(self) -> int:
        return len(self.shares)


@dataclass(frozen=True)
class Confined:
    """What a process is asked to measure."""

    path: str
    algorithm: str
    memory: int
    rows: int
    exponent: float
    seconds: float


def measure(job: Job[ConfinedGrid]) -> Iterator[None]:
    """Measure mapped reads in a memory cgroup, where the page cache can't help.

    Each sample is taken by a process in a group limited to what the process needs anyway, the
    budget, and some slack. It needs the right to create memory cgroups, of version 1 or 2; without
    it there is a message and no record.
    """
    grid, workload = job.grid, Workload("1:1", job.grid.rows)
    # A master of its own: pages that any other process maps can't be dropped.
    path = workload.prepare(job.folder / "confined", grid.page_bytes)
    job.record["pages_bytes"] = open_master(path).manifest.pages_bytes
    for share in grid.shares:
        memory = int(share * workload.bytes)
        if job.has("settings", {"share": share}, grid.algorithms):
            yield
            continue
        rates: dict[str, list[Record]] = {name: [] for name in grid.algorithms}
        for _ in range(grid.rounds):
            for name in grid.algorithms:
                job.say(f"{name}, {share:.0%} of R")
                task = Confined(str(path), name, memory, grid.rows, grid.exponent, grid.seconds)
                rates[name].append(_sample(task, grid.slack))
        job.add("settings", {"share": share, "memory": memory, "rates": rates}, "share")
        yield


def drop_cached(file: Path) -> int:
    """Ask the operating system to forget a file's pages; return how many bytes it still holds."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return resident_bytes(file)


def _sample(task: Confined, slack: int) -> Record:
    """Take one sample in a process of its own; one that was ended says why."""
    with _clean_end(), memory_group("semistream-bench") as group:
        child = _start(task, group)
        try:
            return _converse(child, task, slack, group)
        finally:
            child.kill()
            child.communicate()


def _start(task: Confined, group: MemoryGroup) -> subprocess.Popen[str]:
    python = [sys.executable, "-m", "benchmarks.engine.confined", json.dumps(asdict(task))]
    # This module may have been found by a path that only this process has.
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(  # noqa: S603 - our own module
        ["/bin/sh", "-c", _ENTER, str(group.members), *python],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    )


def _converse(
    child: subprocess.Popen[str], task: Confined, slack: int, group: MemoryGroup
) -> Record:
    assert child.stdin is not None  # noqa: S101 - for the type checker
    own = int(_answer(child)["own"])
    limit = own + task.memory + slack
    file = _pages_file(task.path)
    left = drop_cached(file)
    if left > _MOST_LEFT * file.stat().st_size:
        msg = (
            f"{format_bytes(left)} of the master's pages can't be dropped from the cache; does "
            f"another process map {file}? The figures would be those of the cache"
        )
        raise SemistreamError(msg)
    group.limit(limit)
    child.stdin.write("go\n")
    child.stdin.flush()
    try:
        found = _answer(child)
    except _EndedError as ended:
        return {"own": own, "limit": limit, "left_cached": left, "ended": str(ended)}
    return found | {"own": own, "limit": limit, "left_cached": left}


class _EndedError(SemistreamError):
    """A confined process gave no answer."""


def _answer(child: subprocess.Popen[str]) -> Record:
    assert child.stdout is not None  # noqa: S101 - for the type checker
    if not select.select([child.stdout], [], [], _LONGEST)[0]:
        msg = f"no answer within {_LONGEST} s"
        raise _EndedError(msg)
    line = child.stdout.readline()
    if not line:
        msg = f"exit code {child.wait()}"
        raise _EndedError(msg)
    answer: Record = json.loads(line)
    return answer


@contextmanager
def _clean_end() -> Iterator[None]:
    """Let SIGTERM end this process the way an exception does: the group is removed."""

    def end(*_: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _pages_file(path: str) -> Path:
    master = open_master(Path(path), "direct")
    return master.path / master.manifest.name("pages")


def _child(task: Confined) -> None:
    """Prepare, say what memory this process has, wait for the limit, measure."""
    one_thread()
    workload = Workload("1:1", task.rows)
    feed = Feed.of(workload.stream(task.exponent), min(1_000_000, 2 * task.rows))
    _run(replace(task, memory=task.memory // 8), feed).sample(task.seconds / 10)  # compiles
    gc.collect()  # a mapping that is still there would keep pages from being dropped
    pa.default_memory_pool().release_unused()
    _say({"own": anonymous_bytes()})
    sys.stdin.readline()
    run = _run(task, feed)
    run.warm_up(10 * task.seconds)
    rate = rounded(run.sample(task.seconds))
    _say({"sample": rate, "resident": resident_bytes(_pages_file(task.path)), **run.facts()})


def _run(task: Confined, feed: Feed) -> Run:
    master = open_master(task.path)
    join = Join(master, feed.schema, on="key", memory=task.memory, algorithm=task.algorithm)
    return Run(join, feed.forever())


def _say(answer: Record) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def sheets(record: Record) -> Iterator[Sheet]:
    """Return the rates in a cgroup: algorithms down, budgets across, and ours to the best other."""
    grid, settings = record["grid"], record["settings"]
    mine = candidate(grid["algorithms"])
    rates = [setting["rates"] for setting in settings]
    rows = [(name, *(_rate(each.get(name, [])) for each in rates)) for name in grid["algorithms"]]
    against = (versus(_complete(each), mine) for each in rates)
    rows.append((f"{mine} against", *(str(each or "–") for each in against)))
    runs = [run for s in settings for rate in s["rates"].values() for run in rate]
    held = [run["resident"] / record["pages_bytes"] for run in runs if "sample" in run]
    title = (
        f"In a memory cgroup, mapped, R = {grid['rows']:,} × 120 B, Zipf {grid['exponent']:g}: "
        f"own needs + budget + {format_bytes(grid['slack'])}"
    )
    most = f"the operating system held at most {max(held, default=0):.0%} of the pages"
    heads = ("algorithm", *(f"{setting['share']:.0%} of R" for setting in settings))
    yield Sheet(title, heads, tuple(rows), f"thousand stream rows/s; {most}")


def _complete(rates: Record) -> Record:
    """Return the samples of algorithms of which no process was ended."""
    whole = {name: runs for name, runs in rates.items() if all("sample" in run for run in runs)}
    return {name: {"samples": [run["sample"] for run in runs]} for name, runs in whole.items()}


def _rate(runs: list[Record]) -> str:
    samples = [run["sample"] for run in runs if "sample" in run]
    ended = f" ({len(runs) - len(samples)} ended)" if len(samples) < len(runs) else ""
    return (thousands(samples) if samples else "–") + ended


CONFINED = Benchmark(
    "confined",
    "stream rows a second in a memory cgroup of own needs, budget and slack, mapped",
    ConfinedGrid,
    measure,
    sheets,
)


if __name__ == "__main__":
    _child(Confined(**json.loads(sys.argv[1])))
