"""on_missing="error": a task fails at the first row without a master row."""

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

_SHOWN = 5  # keys in a message: enough to recognise what is missing


class Refusal:
    """Passes answers on; with ``on_missing="error"``, up to one that is missing.

    Rows that an earlier enrichment has found to be missing are that one's, and pass.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._pending: deque[Arrays] = deque()

    def rows(self, joined: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass joined rows."""
        for batch in joined:
            if self._job.refuses:
                live = [pc.equal(batch.column(name), MATCHED) for name in self._job.earlier]
                keys = [batch.column(name) for name in self._job.on]
                self._check(keys, batch.column(self._job.mark), live)
            yield batch

    def take_keys(self, columns: Arrays) -> Arrays:
        """Note the columns of a batch: keys, and whether a row is still live; return the keys."""
        if self._job.refuses:
            self._pending.append(columns)
        return columns[: len(self._job.on)]

    def answers(self, answers: Iterable[pa.Array]) -> Iterator[pa.Array]:
        """Pass answers, one array for each batch of keys."""
        for answer in answers:
            if self._job.refuses:
                columns, count = self._pending.popleft(), len(self._job.on)
                matches = answer if pa.types.is_boolean(answer.type) else answer.is_valid()
                self._check(columns[:count], matches, columns[count:])
            yield answer

    def _check(self, keys: Arrays, matches: pa.Array, live: Arrays) -> None:
        missing = ~matches.to_numpy(zero_copy_only=False)
        for column in live:
            missing &= column.to_numpy(zero_copy_only=False)
        if missing.any():
            raise MissingRowsError(self._message(keys, np.flatnonzero(missing), len(matches)))

    def _message(self, keys: Arrays, rows: np.ndarray, total: int) -> str:
        columns = [key.take(pa.array(rows)).to_pylist() for key in keys]
        different = list(dict.fromkeys(zip(*columns, strict=True)))
        shown = ", ".join(
            " and ".join(
                f"{name}={'null' if value is None else repr(value)}"
                for name, value in zip(self._job.on, key, strict=True)
            )
            for key in different[:_SHOWN]
        )
        more = f" and {len(different) - _SHOWN:,} more" if len(different) > _SHOWN else ""
        return (
            f"enrichment {self._job.called!r}: {len(rows):,} of {total:,} rows have no master "
            f"row; their keys are {shown}{more}. As on_missing='error' asks, nothing of this batch "
            "is written. Bring these rows into the master and start again, or choose "
            "on_missing='quarantine', 'drop' or default values."
        )
