"""By how much a process grows that runs a join."""

from __future__ import annotations

import gc
import multiprocessing
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import semistream as ss
from benchmarks.harness.memory import PeakMemory
from semistream.workloads import Stream, Zipf

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from multiprocessing.connection import Connection

SLOW = {"inlj": 3_000, "derakhshan": 60_000}  # rows enough to fill what they have


def growth(
    master: ss.Master, read: str, algorithm: str, options: Mapping[str, Any], text: str, budget: int
) -> dict[str, int]:
    """Run a join in a process of its own; return the bytes it grew by, and those it counted.

    The process is forked from one that has imported all, and done nothing.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    answer, sender = context.Pipe(duplex=False)
    what = (str(master.path), read, algorithm, dict(options), text, budget, sender)
    process = context.Process(target=_measure, args=what)
    process.start()
    sender.close()  # so that the end of the process is the end of the pipe
    found: dict[str, int] = answer.recv()
    process.join()
    return found


def _measure(
    path: str,
    read: str,
    algorithm: str,
    options: Mapping[str, Any],
    text: str,
    budget: int,
    sender: Connection,
) -> None:
    master = ss.open_master(path, read)

    def run(memory: int, rows: int) -> int:
        schema = next(_batches(master.rows, 1, text)).schema
        join = ss.Join(
            master, schema, on="key", how="left", memory=memory, algorithm=algorithm, **options
        )
        counted = 0
        for batch in _batches(master.rows, rows, text):
            for _ in join.offer(batch):
                pass
            counted = max(counted, join.memory_used.total)
        return counted

    few = algorithm == "inlj" or text == "coded"
    run(1 << 20, 1_000 if few else 30_000)  # kernels are compiled and loaded now,
    run(budget, 1_000)  # also those that only a larger budget needs
    gc.collect()
    with PeakMemory() as peak:
        counted = run(budget, 20_000 if text == "coded" else SLOW.get(algorithm, 200_000))
    sender.send({"grown": peak.grown, "counted": counted})


def _batches(keys: int, rows: int, text: str) -> Iterator[pa.RecordBatch]:
    """Make a stream, with a column of texts, or of one that is long and coded, or with none."""
    for batch in Stream(Zipf(keys), seed=1).batches(rows, batch_rows=8192):
        if text == "text":
            words = pa.array(["w" * (i % 40) for i in range(batch.num_rows)])
        elif text == "coded":
            codes = pa.array([0] * batch.num_rows, pa.int8())
            words = pa.DictionaryArray.from_arrays(codes, pa.array(["w" * 4_000]))
        yield batch if text == "fixed" else batch.append_column("words", words)
