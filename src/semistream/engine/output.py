"""Output: pairs of rows become record batches, and keys are compared for real.

The engine matches by code. Where a code is a hash, equal codes may belong to different keys, so
this is the place where real keys are compared: in one call for many pairs. A pair of different
keys is dropped, and a stream row that keeps no pair has no match.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.arrow.gather import OutputColumns, copies
from semistream.arrow.memory import concat, select, take
from semistream.arrow.recycle import BufferPool
from semistream.arrow.types import encode, plain_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from semistream.engine.pages import PageRun
    from semistream.spec import JoinSpec

    Rows = npt.NDArray[np.int64]

__all__ = ["Assembler", "Output", "Pairs", "all_done", "gathered_schema", "output_row_bytes"]


def output_row_bytes(left: float, right: float, copies: int) -> float:
    """Return the bytes that an output row takes while it is made.

    Its indices, the stream's columns once, the master's as often as `arrow.gather.copies`.
    """
    return 28 + left + copies * right


def gathered_schema(spec: JoinSpec) -> pa.Schema:
    """Return the master columns that output needs: the payload, and keys to be compared."""
    verify = () if spec.master.keys.exact else spec.master.key
    page = spec.master.page_schema
    return pa.schema([page.field(name) for name in (*spec.payload, *verify)])


@dataclass
class Pairs:
    """Matches and absent rows of one source (window or chunk) that are not output yet."""

    rows: list[Rows] = field(default_factory=list)
    right: OutputColumns | None = None
    """The master's columns, if there are matches."""
    absent: list[Rows] = field(default_factory=list)
    found: int = 0
    """How many matches there are."""
    bytes: float = 0.0
    lasting: bool = False
    """Whether the stream rows stay as they are, so that output may share their memory."""
    distinct: bool = False
    """Whether matches are in order of the stream rows, none of which has several."""

    def __bool__(self) -> bool:
        return bool(self.rows or self.absent)

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        held = sum(a.nbytes for a in (*self.rows, *self.absent))
        return held + (self.right.nbytes if self.right else 0)


def all_done(rows: Rows) -> npt.NDArray[np.bool_]:
    """Return that no further pairs will come of any row."""
    return np.zeros(len(rows), dtype=np.bool_)


class Assembler:
    """Makes output batches for one join; it holds no rows."""

    def __init__(self, spec: JoinSpec) -> None:
        self.spec = spec
        self.schema = spec.output
        self.exact = spec.master.keys.exact
        schema, names = gathered_schema(spec), spec.master.page_schema.names
        self._kinds, self.names = schema.types, schema.names
        plain = [plain_type(kind) == kind for kind in spec.output.types]
        self.encodes = not all(plain)
        """Whether values leave in other types than they are held in, perhaps in several batches."""
        self.width = len(schema)
        """How many columns are gathered."""
        self._gathered = tuple(names.index(name) for name in schema.names)
        self.copies = copies(schema)
        self._keys = [spec.stream.names.index(name) for name in spec.stream_keys]
        self.once = self.exact and spec.how in {"semi", "anti"}
        """Whether one pair a row is enough."""

    def gathered(self, rows: int) -> OutputColumns:
        """Return room for the master's columns of so many output rows."""
        return OutputColumns(self._kinds, rows)

    def columns(self, page: pa.RecordBatch) -> list[pa.Array]:
        """Return the columns of a page that output or comparison needs."""
        return [page.column(i) for i in self._gathered]

    def assemble(
        self,
        left: pa.RecordBatch,
        pairs: Pairs,
        confirmed: npt.NDArray[np.bool_] | None,
        unfinished: Callable[[Rows], npt.NDArray[np.bool_]],
    ) -> Iterator[pa.RecordBatch]:
        """Make the output of some pairs.

        Parameters
        ----------
        left
            The stream rows that the pairs refer to.
        pairs
            What was matched and what is absent.
        confirmed
            For each row of ``left``, whether a pair of it had equal keys; kept between calls.
            None where codes are exact.
        unfinished
            Returns of which rows further pairs will come.
        """
        rows = _joined(pairs.rows)
        right = pairs.right.arrays() if pairs.right and len(rows) else []
        absent = pairs.absent
        if confirmed is not None and len(rows):
            rows, right, lost = self._compare(left, rows, right, confirmed, unfinished)
            absent = [*absent, lost]
        ascending = pairs.distinct and not any(map(len, absent))
        alone = _joined(absent)
        how = self.spec.how
        matched = rows if how != "anti" else rows[:0]
        alone = alone if how in {"left", "anti"} else alone[:0]
        if not len(matched) + len(alone):
            return
        if how == "left" and len(alone):
            kinds = self._kinds[: len(self.spec.payload)]
            columns = right or [pa.nulls(0, plain_type(kind)) for kind in kinds]
            right = [concat([a, pa.nulls(len(alone), a.type)]) for a in columns]
        if self.spec.mark:
            right = [*right, pa.array(np.arange(len(matched) + len(alone)) < len(matched))]
        index = np.concatenate([matched, alone]) if len(alone) else matched
        ours = _stream_rows(left, index, pairs.lasting, ascending)
        yield from self._encoded([*ours, *right])

    def _compare(
        self,
        left: pa.RecordBatch,
        rows: Rows,
        right: list[pa.Array],
        confirmed: npt.NDArray[np.bool_],
        unfinished: Callable[[Rows], npt.NDArray[np.bool_]],
    ) -> tuple[Rows, list[pa.Array], Rows]:
        """Drop pairs of different keys; return the rest, and the rows that lost all their pairs."""
        equal = self._equal(left, rows, right)
        right = right[: len(self.spec.payload)]
        lost = rows[:0]
        if not equal.all():
            refuted = np.unique(rows[~equal])
            right = [select(column, pa.array(equal)) for column in right]
            rows = rows[equal]
            known = confirmed[refuted] | np.isin(refuted, rows) | unfinished(refuted)
            lost = refuted[~known]
        if self.spec.how == "semi":
            first = np.unique(rows)
            rows = first[~confirmed[first]]
            confirmed[first] = True
        confirmed[rows] = True
        return rows, right, lost

    def _equal(
        self, left: pa.RecordBatch, rows: Rows, right: list[pa.Array]
    ) -> npt.NDArray[np.bool_]:
        keys, index = self.spec.master.keys, pa.array(rows)
        ours = keys.canonical([take(left.column(i), index) for i in self._keys])
        theirs = keys.canonical(right[len(self.spec.payload) :])
        equal = np.ones(len(rows), dtype=np.bool_)
        for a, b in zip(ours, theirs, strict=True):
            equal &= pc.equal(a, b).fill_null(False).to_numpy(zero_copy_only=False)
        return equal

    def _encoded(self, columns: list[pa.Array]) -> Iterator[pa.RecordBatch]:
        """Return the columns in the types of the output, in halves where a dictionary is too large.

        The window may hold rows with more values than one dictionary's index type can count.
        """
        if not self.encodes:
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)
            return
        pairs = zip(columns, self.schema, strict=True)
        try:
            arrays = [encode(column, field.type) for column, field in pairs]
        except pa.ArrowInvalid:
            half = len(columns[0]) // 2
            if not half:
                raise
            yield from self._encoded([column.slice(0, half) for column in columns])
            yield from self._encoded([column.slice(half) for column in columns])
            return
        yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _stream_rows(
    left: pa.RecordBatch, index: Rows, lasting: bool, ascending: bool
) -> list[pa.Array]:
    """Return these rows: a slice where they last and follow each other, else a copy."""
    first, count = int(index[0]), len(index)
    neighbours = lasting and int(index[-1]) - first == count - 1
    if neighbours and (ascending or (index[1:] > index[:-1]).all()):
        return list(left.slice(first, count).columns)
    rows = pa.array(index)
    return [take(column, rows) for column in left.columns]


def _joined(arrays: list[Rows]) -> Rows:
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int64)


class Output:
    """Collects pairs until there are enough for a batch, within a number of bytes.

    Parameters
    ----------
    assembler
        Makes the batches.
    capacity
        Bytes for everything that output needs while it is made.
    rows
        The most rows that one call of a kernel may produce.
    """

    def __init__(self, assembler: Assembler, capacity: int, rows: int) -> None:
        self.assembler = assembler
        self.capacity = capacity
        self.rows = np.empty(rows, dtype=np.int64)
        self.positions = np.empty(rows, dtype=np.int64)
        self.absent = np.empty(rows, dtype=np.int64)
        self.blocks = np.empty(rows, dtype=np.int32)
        self.pairs = Pairs()
        self.buffers = BufferPool(assembler.width)
        """Memory of batches that the caller has let go of."""
        self.leaving: Pairs | None = None
        """What the caller is being given."""

    @property
    def nbytes(self) -> int:
        """Bytes held now."""
        leaving = self.leaving.nbytes if self.leaving else 0
        return self.pairs.nbytes + leaving + self.scratch + self.buffers.nbytes

    @property
    def scratch(self) -> int:
        """Bytes that kernels write to."""
        return 3 * self.rows.nbytes + self.blocks.nbytes

    def row_bytes(self, left: float, right: float) -> float:
        """Return the bytes that a row of these sizes takes."""
        return output_row_bytes(left, right, self.assembler.copies)

    def room(self, left: int, right: int) -> int:
        """Return how many more rows of these sizes may be collected; at least one, if none was."""
        free = self.capacity - self.scratch - self.pairs.bytes
        # The columns that are gathered have room for so many matches, however narrow.
        room = min(len(self.rows) - self.pairs.found, int(free / self.row_bytes(left, right)))
        return room if self.pairs else max(1, room)

    def add(self, run: PageRun, found: int, missing: int, sizes: tuple[int, int]) -> None:
        """Collect the first ``found`` pairs and ``missing`` absent rows of the kernel's arrays."""
        if found:
            if self.pairs.right is None:
                self.pairs.right = self.assembler.gathered(len(self.rows))
            run.gather(self.pairs.right, self.blocks[:found], self.positions[:found])
            self.pairs.rows.append(self.rows[:found].copy())
            self.pairs.found += found
        if missing:
            self.pairs.absent.append(self.absent[:missing].copy())
        self.pairs.bytes += (found + missing) * self.row_bytes(*sizes)

    def give_out(self, pairs: Pairs) -> None:
        """Note that all is made of these pairs, which is the caller's now."""
        pairs.rows, pairs.right, pairs.absent = [], None, []
        self.leaving = None
        self.buffers.give_out()

    def take(self) -> Pairs:
        """Return what was collected and start anew."""
        pairs, self.pairs = self.pairs, Pairs()
        return pairs
