"""A master that is updated while a query runs; what each snapshot held is remembered."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from semistream import build_master
from semistream.master import sync_master
from semistream.master.snapshots.pins import all_pins

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

KEYS = 3_000
ABSENT = -1


class Updates:
    """Keys with a number each; updates change some, insert some and delete some.

    Parameters
    ----------
    path
        The master's folder.
    name
        The number's column.
    """

    def __init__(self, path: Path, name: str = "number", seed: int = 1) -> None:
        self.path, self.name = path, name
        self._rng = np.random.default_rng(seed)
        self._numbers = np.arange(KEYS, dtype=np.int64) * 1000
        self._numbers[::7] = ABSENT
        present = np.flatnonzero(self._numbers >= 0)
        made = build_master(self._rows(present), path, key="key", page_bytes="4KB")
        self.count = 0
        self.states = {made.manifest.files: self._numbers}
        self.pins: dict[int, str] = {}

    def _rows(self, keys: npt.NDArray[np.int64]) -> pa.Table:
        return pa.table({"key": keys, self.name: self._numbers[keys]})

    def update(self) -> None:
        """Change the rows of some keys, that is, insert, update or delete each."""
        keys = self._rng.choice(KEYS, 60, replace=False)
        changed, gone = keys[:40], keys[40:]
        self.count += 1
        self._numbers = self._numbers.copy()
        self._numbers[changed] = changed * 1000 + self.count
        self._numbers[gone] = ABSENT
        if self.count % 10:
            made = sync_master(self.path, upserts=self._rows(changed), deletes=gone.tolist()).master
        else:
            present = np.flatnonzero(self._numbers >= 0)
            made = build_master(self._rows(present), self.path, key="key", page_bytes="4KB")
        self.states[made.manifest.files] = self._numbers
        self.note_pins()

    @contextmanager
    def going_on(self, pause: float) -> Iterator[None]:
        """Update again and again meanwhile."""
        enough = threading.Event()

        def work() -> None:
            while not enough.wait(pause):
                self.update()

        with ThreadPoolExecutor(1) as pool:
            working = pool.submit(work)
            try:
                yield
            finally:
                enough.set()
            working.result()

    def note_pins(self) -> None:
        """Remember the pins: those of batches long past go."""
        for pinned in all_pins(self.path):
            if pinned.batch.isdigit():
                known = self.pins.setdefault(int(pinned.batch), pinned.pin.files)
                assert known == pinned.pin.files

    def wrong(self, result: pa.Table) -> int:
        """Count the rows that disagree with the snapshot to which their batch was pinned."""
        batches, keys = result["batch"].to_numpy(), result["key"].to_numpy()
        found = result[self.name].fill_null(ABSENT).to_numpy()
        wrong = 0
        for batch in np.unique(batches).tolist():
            mine = batches == batch
            wrong += int((found[mine] != self.states[self.pins[batch]][keys[mine]]).sum())
        return wrong


def put(folder: Path, number: int, rows: int, a_batch: int = 1) -> None:
    """Write a file, whole or not at all, at a time of its own; so many are a micro-batch."""
    rng = np.random.default_rng(number)
    sales = {"sale": np.arange(rows) + number * rows, "batch": np.full(rows, number // a_batch)}
    draft = folder.parent / f"{number}.draft"
    pq.write_table(pa.table({**sales, "key": rng.integers(0, KEYS, rows)}), draft)
    os.utime(draft, (1_700_000_000 + number, 1_700_000_000 + number))
    folder.mkdir(exist_ok=True)
    draft.rename(folder / f"{number:04d}.parquet")
