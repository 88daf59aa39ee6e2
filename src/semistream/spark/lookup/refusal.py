"""The end of a task in which a row has no master row, where that was to be an error."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import MissingRowsError
from semistream.missing import MATCHED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from semistream.spark.lookup.job import Job

    Arrays = Sequence[pa.Array]

__all__ = ["Refusal"]

_SHOWN = 5  # keys in a message


class Refusal:
    """Lets answers pass; with ``on_missing="error"``, up to one that is missing.

    Rows that an earlier enrichment has found to be missing are that one's, and pass.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._asked: deque[Arrays] = deque()

    def rows(self, joined: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass joined rows."""
        for batch in joined:
            if self._job.refuses:
                live = [pc.equal(batch.column(name), MATCHED) for name in self._job.earlier]
                keys = [batch.column(name) for name in self._job.on]
                self._check(keys, batch.column(self._job.mark), live)
            yield batch

    def asked(self, columns: Arrays) -> Arrays:
        """Note what is asked: keys, and whether a row is still to be answered; give the keys."""
        if self._job.refuses:
            self._asked.append(columns)
        return columns[: len(self._job.on)]

    def answers(self, given: Iterable[pa.Array]) -> Iterator[pa.Array]:
        """Pass answers, one array for each of what was asked."""
        for answer in given:
            if self._job.refuses:
                asked, count = self._asked.popleft(), len(self._job.on)
                found = answer if pa.types.is_boolean(answer.type) else answer.is_valid()
                self._check(asked[:count], found, asked[count:])
            yield answer

    def _check(self, keys: Arrays, found: pa.Array, live: Arrays) -> None:
        missing = ~found.to_numpy(zero_copy_only=False)
        for column in live:
            missing &= column.to_numpy(zero_copy_only=False)
        if missing.any():
            raise MissingRowsError(self._message(keys, np.flatnonzero(missing), len(found)))

    def _message(self, keys: Arrays, rows: np.ndarray, looked_at: int) -> str:
        columns = [key.take(pa.array(rows)).to_pylist() for key in keys]
        different = list(dict.fromkeys(zip(*columns, strict=True)))
        shown = ", ".join(map(self._shown, different[:_SHOWN]))
        more = f" and {len(different) - _SHOWN:,} more" if len(different) > _SHOWN else ""
        return (
            f"enrichment {self._job.called!r}: {len(rows):,} of {looked_at:,} rows have no master "
            f"row; their keys are {shown}{more}. As on_missing='error' asks, nothing of this batch "
            "is written. Bring these rows into the master and start again, or choose "
            "on_missing='quarantine', 'drop' or default values."
        )

    def _shown(self, key: tuple[object, ...]) -> str:
        pairs = zip(self._job.on, key, strict=True)
        return " and ".join(f"{n}={'null' if v is None else repr(v)}" for n, v in pairs)
