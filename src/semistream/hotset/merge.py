"""The next generation of a hot set: the choice of its rows, and how they are written.

Rows are copied from their sources (the present generation, staged rows) to the slot, column by
column, by compiled loops: that takes no memory of the process. Only nested columns do.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from semistream.arrow.columns import is_in_place
from semistream.arrow.keys import is_among, random_salt
from semistream.arrow.memory import concat, take
from semistream.arrow.page_directory import PageDirectory
from semistream.arrow.types import row_bytes, row_width
from semistream.engine.ranking import keep_best, value_starts
from semistream.hotset.sizes import BESIDE, HEADER, overhead
from semistream.kernels.chains import chain_values
from semistream.kernels.memory import gather_bits, gather_ends, gather_fixed, gather_texts

if TYPE_CHECKING:
    import mmap
    from collections.abc import Sequence

    import numpy.typing as npt

    from semistream.hotset.slot import Slot

    Positions = npt.NDArray[np.int64]

__all__ = ["Chosen", "choose_rows", "unchanged_rows", "write"]

_ALIGNED = 64  # bytes: what Arrow recommends for buffers
_WIDE = {pa.large_string(), pa.large_binary()}


@dataclass(frozen=True)
class Chosen:
    """The rows of the next generation: for each its source, its position there, and its hits."""

    block: npt.NDArray[np.int32]
    position: npt.NDArray[np.int64]
    hits: npt.NDArray[np.uint32]
    bytes: int
    widest: int
    lost: float
    """Hits, for its bytes, of the most frequent row that is left out; negative if none is."""


def choose_rows(
    sources: Sequence[pa.RecordBatch],
    hits: Sequence[npt.NDArray[np.uint32]],
    room: int,
    mean: float,
    candidates: Sequence[Positions | None] | None = None,
) -> Chosen:
    """Choose the join values most frequent for their bytes, whole, as many as have room.

    A join value that several sources have is taken from the first. ``mean`` are the bytes of an
    average row, to which ``lost`` is scaled. ``candidates`` are the rows of each source to choose
    from, whole join values; all by default.
    """
    candidates = [None] * len(sources) if candidates is None else candidates
    some = [
        np.arange(source.num_rows) if chosen is None else chosen
        for source, chosen in zip(sources, candidates, strict=True)
    ]
    block = np.repeat(np.arange(len(sources), dtype=np.int32), list(map(len, some)))
    position, pairs = np.concatenate(some), list(zip(sources, some, strict=True))
    counts = np.concatenate([h[chosen] for h, chosen in zip(hits, some, strict=True)])
    sizes = np.concatenate([row_bytes(s)[chosen] for s, chosen in pairs]).astype(np.float32)
    sizes += BESIDE
    codes = np.concatenate([s.column(0).to_numpy()[chosen] for s, chosen in pairs])
    fresh = _first_of_each(codes, block)
    if fresh is not None:
        block, position, codes = block[fresh], position[fresh], codes[fresh]
        counts, sizes = counts[fresh], sizes[fresh]
    firsts = value_starts(codes)
    del codes
    value_bytes = np.add.reduceat(sizes, firsts) if len(firsts) else sizes
    worth = np.divide(counts[firsts], value_bytes, dtype=np.float32)
    stays, lost = keep_best(worth, value_bytes, room)
    lost = -1.0 if stays.all() else lost
    keep = np.repeat(stays, np.diff(firsts, append=len(block)))
    kept = float(sizes[keep].sum(dtype=np.float64))
    widest = int(sizes[keep].max(initial=0)) - BESIDE if len(sizes) else 0
    return Chosen(block[keep], position[keep], counts[keep], int(kept), max(0, widest), lost * mean)


def unchanged_rows(
    batch: pa.RecordBatch, hits: npt.NDArray[np.uint32], changed: npt.NDArray[np.int64]
) -> Chosen:
    """Choose the rows of all join values whose code is not among the changed, sorted ones."""
    position = np.flatnonzero(~is_among(batch.column(0).to_numpy(), changed))
    sizes = row_bytes(batch)[position]
    return Chosen(
        block=np.zeros(len(position), dtype=np.int32),
        position=position,
        hits=hits[position],
        bytes=int(sizes.sum()) + BESIDE * len(position),
        widest=int(sizes.max(initial=0)),
        lost=-1.0,
    )


def _first_of_each(
    codes: npt.NDArray[np.int64], block: npt.NDArray[np.int32]
) -> npt.NDArray[np.int64] | None:
    """Return the rows whose join value no earlier source has, None where that is all of them."""
    old = int(np.searchsorted(block, 1))  # rows of the first source
    if old == len(codes):
        return None
    values, first = np.unique(codes[old:], return_index=True)
    origin = block[old:]
    fresh = origin == origin[first][np.searchsorted(values, codes[old:])]
    fresh &= ~np.isin(codes[old:], codes[:old])
    return np.append(np.arange(old), old + np.flatnonzero(fresh))


def write(slot: Slot, sources: Sequence[pa.RecordBatch], chosen: Chosen) -> tuple[int, int] | None:
    """Write the chosen rows into a slot; return where the description is, None without room."""
    memory = slot.begin(chosen.bytes + overhead(sources[0].num_columns))
    return None if memory is None else _Writer(memory, sources, chosen).write()


class _Writer:
    """Writes buffers one behind the other."""

    def __init__(
        self, memory: mmap.mmap, sources: Sequence[pa.RecordBatch], chosen: Chosen
    ) -> None:
        self._memory, self._sources, self._chosen = memory, sources, chosen
        self._rows, self._end = len(chosen.block), HEADER

    def write(self) -> tuple[int, int]:
        chosen, rows = self._chosen, self._rows
        self._array(np.uint32, rows)[0][:] = chosen.hits
        slots = 1 << max(0, (rows - 1).bit_length())
        heads, at_heads = self._array(np.int32, slots)
        chain, at_chain = self._array(np.int32, rows)
        columns = [self._column(i) for i in range(self._sources[0].num_columns)]
        codes = np.frombuffer(self._memory, np.int64, rows, columns[0]["buffers"][1][0])
        salt = random_salt()
        chain_values(codes, heads, chain, np.uint64(salt))
        description = {"rows": rows, "widest": chosen.widest, "heads": at_heads, "chain": at_chain}
        description |= {"salt": salt, "columns": columns, "size": self._end}
        return self._put(json.dumps(description).encode())

    def _place(self, size: int) -> tuple[int, int]:
        start = -(-self._end // _ALIGNED) * _ALIGNED
        if start + size > len(self._memory):
            msg = f"{start + size:,} bytes in a slot of {len(self._memory):,}"
            raise AssertionError(msg)
        self._end = start + size
        return start, size

    def _array(self, dtype: type, count: int) -> tuple[npt.NDArray[Any], tuple[int, int]]:
        place = self._place(count * np.dtype(dtype).itemsize)
        return np.frombuffer(self._memory, dtype, count, place[0]), place

    def _put(self, content: Any) -> tuple[int, int]:  # noqa: ANN401
        values, place = self._array(np.uint8, len(content))
        values[:] = np.frombuffer(content, np.uint8)
        return place

    def _column(self, number: int) -> dict[str, Any]:
        columns = [source.column(number) for source in self._sources]
        kind = columns[0].type
        if not PageDirectory.possible(pa.schema([("", kind)])):
            return self._message(columns)
        where = (self._chosen.block, self._chosen.position)
        nulls = 0
        buffers: list[tuple[int, int] | None] = [None]
        if any(column.null_count for column in columns):
            nulls, buffers[0] = self._bits(columns, 0)
        if kind == pa.bool_():
            buffers.append(self._bits(columns, 1)[1])
        elif is_in_place(kind):
            width = row_width(kind) or 0
            values, place = self._array(np.uint8, self._rows * width)
            _copy_fixed(columns, *where, width, values.ctypes.data)
            buffers.append(place)
        else:
            buffers += self._texts(columns, kind in _WIDE)
        return {"buffers": buffers, "nulls": nulls}

    def _bits(self, columns: list[pa.Array], number: int) -> tuple[int, tuple[int, int]]:
        bits, place = self._array(np.uint8, self._rows // 8 + 1)
        bits[:] = 0
        where = (self._chosen.block, self._chosen.position)
        return gather_bits(*_addresses(columns, number), *where, bits, 0), place

    def _texts(self, columns: list[pa.Array], wide: bool) -> list[tuple[int, int]]:
        where = (self._chosen.block, self._chosen.position)
        ends, at_ends = self._array(np.int64 if wide else np.int32, self._rows + 1)
        start, bounds = _addresses(columns, 1)
        size = gather_ends(start, bounds, *where, wide, ends)
        data, at_data = self._array(np.uint8, size)
        gather_texts(start, bounds, _addresses(columns, 2)[1], *where, wide, data.ctypes.data)
        return [at_ends, at_data]

    def _message(self, columns: list[pa.Array]) -> dict[str, Any]:
        """Write a nested column as an Arrow message."""
        c, pieces = self._chosen, []
        for i, column in enumerate(columns):
            pieces.append(take(column, pa.array(c.position[c.block == i])))
        array = concat(pieces)
        pieces.clear()  # else they were a third copy beside the message
        batch = pa.RecordBatch.from_arrays([array], schema=pa.schema([("", array.type)]))
        return {"message": self._put(batch.serialize())}


def _addresses(
    columns: Sequence[pa.Array], number: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the address of a buffer of each column, as the compiled loops want it; 0 if none."""
    buffers = [column.buffers()[number] for column in columns]
    places = [0 if b is None or not b.size else b.address for b in buffers]
    return np.zeros(len(columns), dtype=np.int64), np.array(places, dtype=np.int64)


def _copy_fixed(
    columns: Sequence[pa.Array],
    block: npt.NDArray[np.int32],
    position: npt.NDArray[np.int64],
    width: int,
    out: int,
) -> None:
    gather_fixed(*_addresses(columns, 1), block, position, width, out)
