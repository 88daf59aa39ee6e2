"""Output memory that is used again when the caller has let go of it.

Fresh memory costs a page fault every 4 KB, 0.5 to 3 µs each: as much as to gather what goes there.
A buffer that was given out comes back when the last Arrow array on it is gone, and one a column is
kept. While a batch is made none is: together with what is being made, it is one piece a column.
"""

from __future__ import annotations

import weakref

import pyarrow as pa

from semistream.arrow.memory import allocate

__all__ = ["BufferPool"]

_LEAST_SHARE = 2  # a batch that fills less than one part in so many gets memory of its own


class BufferPool:
    """Memory for so many columns of output.

    Examples
    --------
    >>> memory = BufferPool(1)
    >>> first = memory.take(0, 1 << 20)
    >>> address = first.address
    >>> memory.give_out()
    >>> del first
    >>> memory.nbytes == 1 << 20, memory.take(0, 1_000_000).address == address
    (True, True)
    """

    def __init__(self, columns: int) -> None:
        self._idle: list[pa.Buffer | None] = [None] * columns
        self._making = self._resting = False

    @property
    def nbytes(self) -> int:
        """Bytes that are kept for the next batch."""
        return sum(memory.size for memory in self._idle if memory is not None)

    def take(self, column: int, size: int) -> pa.Buffer:
        """Return uninitialised memory for a column of the batch that is being made."""
        self._making, self._resting = True, False
        memory, self._idle[column] = self._idle[column], None
        if memory is None or not size <= memory.size <= _LEAST_SHARE * size:
            memory = allocate(size)
        return pa.foreign_buffer(memory.address, size, _Loan(self, column, memory))

    def give_out(self) -> None:
        """Note that the batch is made, and the caller's."""
        self._making = False

    def put_back(self, column: int, memory: pa.Buffer) -> None:
        """Keep memory that the caller has let go of, unless a batch is being made."""
        if not (self._making or self._resting):
            self._idle[column] = memory

    def rest(self) -> None:
        """Keep nothing until memory is next taken: output is made elsewhere, and needs the room."""
        self._resting = True
        self._idle = [None] * len(self._idle)


class _Loan:
    """Goes when the last Arrow buffer on its memory does; it may do so in any thread."""

    def __init__(self, lender: BufferPool, column: int, memory: pa.Buffer) -> None:
        self._lender, self._column, self._memory = weakref.ref(lender), column, memory

    def __del__(self) -> None:
        lender = self._lender()
        if lender is not None:
            lender.put_back(self._column, self._memory)
