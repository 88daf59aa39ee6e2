"""``semistream demo``: everything once, on this machine, with nothing to set up."""

# ruff: noqa: PLC0415 - Spark is imported when the demonstration starts

from __future__ import annotations

import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from semistream.cli.terminal import console, messages, needed, progress_bar
from semistream.errors import OptionError
from semistream.units import format_bytes, parse_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from semistream.cli.demo.run import Demo
    from semistream.spark.metrics.report import BatchMetrics

__all__ = ["demo"]

_LEAST = 1000  # rows: with fewer there is nothing to see
_NEXT = """
What to try next:
  semistream demo --share 0.01              a hundredth of the master in memory
  semistream demo --read mapped             let the operating system's cache help
  semistream generate --help, semistream run --help
                                            your own pipeline, without writing Python
  README.md                                 the lines of Python that did this
"""


def demo(
    folder: Annotated[
        Path,
        typer.Option(
            help="The folder to write to: a new one, or that of an earlier demo, which is emptied "
            "first."
        ),
    ] = Path("demo-out"),
    products: Annotated[str, typer.Option(help="Rows of the master; 2M is two million.")] = "2M",
    sales: Annotated[str, typer.Option(help="Rows of the stream.")] = "5M",
    share: Annotated[
        float,
        typer.Option(
            help="The budget of the join, as a fraction of the master's size.", min=0.001, max=1.0
        ),
    ] = 0.05,
    read: Annotated[
        str,
        typer.Option(help="direct: bypass the operating system's page cache; mapped: use it."),
    ] = "direct",
) -> None:
    """Stream sales into a warehouse with surrogate keys, and verify every row.

    Build a master of products, stream sales through Spark into a Parquet table within a budget of
    5 % of the master's size (--share), compare the result with a batch join, and draw a picture.
    """
    with messages(), needed("the demonstration", pyspark="spark", pandas="spark"):
        from semistream.cli.demo.run import Demo

        sizes = (_rows(products, "products"), _rows(sales, "sales"))
        _run(Demo(folder, *sizes, share, read))


def _rows(text: str, option: str) -> int:
    """Parse a number of rows, a thousand at least."""
    rows = parse_count(text, option)
    if rows < _LEAST:
        msg = f"--{option} {text} is too few to show anything; give at least {_LEAST:,}"
        raise OptionError(msg)
    return rows


def _run(demo: Demo) -> None:
    from semistream.spark.cluster.executors import tasks_at_once
    from semistream.spark.cluster.session import session

    demo.prepare()
    with _step("building a master of products", demo.products) as done:
        master = demo.build(done)
    memory = demo.memory(master)
    _say(
        f"master: {master.rows:,} products, {format_bytes(master.statistics.bytes)} in "
        f"{demo.folder}; {format_bytes(memory)} of memory ({demo.share:.0%}) for the join, "
        f"read {master.read}"
    )
    with _step("writing sales", demo.sales) as done:
        demo.write_sales(done)
    with _step("starting Spark", None):
        spark = session("semistream-demo")
    batches: list[BatchMetrics] = []
    with _step("streaming sales through Spark", demo.sales) as done:

        def note(metrics: BatchMetrics) -> None:
            batches.append(metrics)
            done(sum(m.rows for m in batches))

        seconds = demo.stream(spark, master, note)
        demo.wait_for(batches, demo.sales)
    tasks = tasks_at_once(spark)
    _show(batches, seconds, tasks, demo.sales)
    with _step("verifying against a batch join", None):
        rows = demo.verify(spark)
    _say(f"[bold green]result verified: {rows:,} rows[/]")
    spark.stop()
    picture = _picture(batches, tasks, demo.folder / "run.png")
    console.print(picture, _NEXT, sep="\n", highlight=False, markup=False, soft_wrap=True)


def _picture(batches: list[BatchMetrics], tasks: int, path: Path) -> str:
    """Draw rate, hit rate and memory of each micro-batch; return where, or why there is none."""
    try:
        from matplotlib.figure import Figure  # slow to import
    except ModuleNotFoundError:
        return "no picture was drawn: a picture needs matplotlib: pip install 'semistream[figures]'"
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    rate, hits, memory = figure.subplots(1, 3)
    numbers = [m.batch for m in batches]
    rate.bar(numbers, [m.rows / m.seconds / 1e3 for m in batches], color="tab:blue")
    rate.set(title="thousand rows a second", xlabel="micro-batch")
    hits.plot(numbers, [100 * m.hit_rate for m in batches], marker="o", color="tab:green")
    hits.set(title="answered from memory, %", xlabel="micro-batch", ylim=(0, 102))
    held = [m.held(tasks) / 2**20 for m in batches]
    memory.plot(numbers, held, marker="o", color="tab:red", label="held")
    memory.axhline(batches[0].budget / 2**20, linestyle="--", color="black", label="budget")
    memory.set(title="memory of all tasks, MB", xlabel="micro-batch", ylim=(0, None))
    memory.legend()
    figure.savefig(path, metadata={"Date": None})
    return f"a picture of the run: {path}"


def _show(batches: list[BatchMetrics], seconds: float, tasks: int, sales: int) -> None:
    warm = batches[1:] or batches
    rate = sum(m.rows for m in warm) / max(1e-9, sum(m.seconds for m in warm))
    hits = sum(m.hit_rate * m.rows for m in warm) / max(1, sum(m.rows for m in warm))
    held, budget = max(m.held(tasks) for m in batches), batches[0].budget
    read = sum(m.counters["bytes_read"] for m in batches)
    _say(f"streamed: {sales:,} sales in {seconds:.1f} s, {len(batches)} micro-batches")
    _say(f"rate: {rate:,.0f} rows/s once warm")
    _say(
        f"hit rate: {hits:.1%} of rows answered from memory; {format_bytes(read)} read for the rest"
    )
    _say(f"memory: {tasks} tasks held at most {format_bytes(held)} of {format_bytes(budget)}")


def _say(text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True)


@contextmanager
def _step(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a step while it is at work: a bar where its size is known."""
    start = time.monotonic()
    with progress_bar() as bar:
        task = bar.add_task(what, total=total)
        yield lambda rows: bar.update(task, completed=rows)
    _say(f"[dim]{what}: {time.monotonic() - start:.1f} s[/]")
