"""What the disk allows: its speed past the page cache, and the rate that no join can exceed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.spark.data import KEY, STRIDE, Batches
from semistream.errors import SemistreamError
from semistream.master.files.aio import reads_per_second
from semistream.workloads import Zipf

_PASS = 128 << 10  # bytes of a read of a pass; larger ones were no faster
_BLOCK = 4 << 10  # the least that a disk reads
_DRAWN = 1 << 18  # random offsets: more than are read in a second

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Device:
    """The speed of a disk, measured with direct reads of a file, 32 in flight."""

    bandwidth: float
    """Bytes a second of one pass."""
    reads: float
    """Reads of 4 KB at random places a second."""


def measure_device(path: Path, seconds: float, rng: np.random.Generator) -> Device:
    """Measure the disk below a file, each speed for so many seconds."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        size = os.fstat(file).st_size
        in_order = np.arange(0, size - _PASS + 1, _PASS)
        passed = reads_per_second(file, _PASS, in_order, seconds)
        scattered = rng.integers(0, size // _BLOCK, _DRAWN) * _BLOCK
        reads = reads_per_second(file, _BLOCK, scattered, seconds)
    finally:
        os.close(file)
    if passed is None or reads is None:
        msg = f"{path}: there are no asynchronous direct reads here, by which disks are measured"
        raise SemistreamError(msg)
    return Device(passed * _PASS, reads)


@dataclass(frozen=True)
class Demand:
    """What a stream asks of the disk if the most frequent rows that fit are in memory."""

    best_share: float
    """The fraction of stream rows that those answer: the best of all sets that never change."""
    cold_keys: float
    """Distinct other keys of a micro-batch, on average."""


def demand_of(stream: Batches, keys: int, exponent: float, in_memory: int) -> Demand:
    """Count in the files of a stream what the most frequent keys leave to the disk.

    These are the keys of the first ranks, not those that the files happen to have most often:
    which key will come twice by chance nobody can know.
    """
    hot = STRIDE * Zipf(keys, exponent).key_of(np.arange(1, min(keys, in_memory) + 1))
    paths = stream.paths
    files = [paths[i : i + stream.files] for i in range(0, len(paths), stream.files)]
    batches = (
        np.concatenate([pq.read_table(path, columns=[KEY])[KEY].to_numpy() for path in each])
        for each in files
    )
    return count_demand(list(batches), hot)


def count_demand(batches: Sequence[Ints], hot: Ints) -> Demand:
    """Return the demand of micro-batches of keys.

    Examples
    --------
    >>> count_demand([np.array([7, 7, 1, 2]), np.array([7, 3, 3, 3])], np.array([7]))
    Demand(best_share=0.375, cold_keys=1.5)
    """
    cold = [keys[~np.isin(keys, hot)] for keys in batches]
    rows = sum(map(len, batches))
    distinct = [len(np.unique(keys)) for keys in cold]
    return Demand(1 - sum(map(len, cold)) / rows, sum(distinct) / len(distinct))


def bound_rate(batch_rows: int, pages_bytes: int, cold_keys: float, device: Device) -> float:
    """Compute the stream rows a second that a disk allows.

    For each micro-batch all pages are read once, or a block for every distinct cold key, whichever
    takes less time.

    Examples
    --------
    >>> bound_rate(1000, 500, 20.0, Device(bandwidth=1000.0, reads=10.0))  # the pass: 0.5 s
    2000.0
    >>> bound_rate(1000, 500, 2.0, Device(bandwidth=1000.0, reads=10.0))  # the keys: 0.2 s
    5000.0
    """
    return batch_rows / min(pages_bytes / device.bandwidth, max(1.0, cold_keys) / device.reads)
