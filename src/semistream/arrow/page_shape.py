"""How the columns of a page lie in the buffers of its message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.kernels.structure import (
    FIXED,
    LARGE_LIST,
    LARGE_TEXT,
    LIST,
    NOTHING,
    STRUCT,
    TEXT,
    UNION,
    first_unsound,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    _Node = tuple[int, int, int, int, int, int]

__all__ = ["PageShape"]

_BUFFERS = {NOTHING: 0, FIXED: 2, TEXT: 3, LARGE_TEXT: 3, LIST: 2, LARGE_LIST: 2}
_BUFFERS |= {STRUCT: 1, UNION: 1}
_WORD = 64  # bits; a union has up to 128 type codes


class PageShape:
    """Checks whether bytes are a page of this schema, whose types are plain.

    Examples
    --------
    >>> batch = pa.record_batch({"code": [1, 2], "name": ["pen", "ink"]})
    >>> page, shape = batch.serialize(), PageShape(batch.schema)
    >>> shape.fits(page, page.size, 2), shape.fits(page, page.size, 3)
    (True, False)
    """

    def __init__(self, schema: pa.Schema) -> None:
        nodes: list[_Node] = []
        for kind in schema.types:
            _describe(kind, -1, 1, nodes)
        self._nodes = np.array(nodes, dtype=np.int64).reshape(-1, 6)
        self._buffers = sum(_BUFFERS[node[0]] for node in nodes)

    def fits(self, content: pa.Buffer, length: int, rows: int) -> bool:
        """Return whether the first ``length`` bytes are a page of so many rows, whole and sound."""
        one = np.array([content.address]), np.array([length], np.int32), np.array([rows], np.int32)
        return self.first_unsound(*one) < 0

    def first_unsound(
        self,
        addresses: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int32],
        rows: npt.NDArray[np.int32],
    ) -> int:
        """Return the first that is no such page of those at these addresses, −1 if all are."""
        return int(first_unsound(addresses, lengths, rows, self._nodes, self._buffers))


def _describe(kind: pa.DataType, above: int, share: int, nodes: list[_Node]) -> None:
    """Append what `page_fits` must know of a type, then of the types in it."""
    layout, place = _layout(kind), len(nodes)
    bits = kind.bit_width if layout == FIXED else 0
    nodes.append((layout, bits, above, share, *_type_codes(kind)))
    for child, each in _children(kind, layout):
        _describe(child, place, each, nodes)


def _layout(kind: pa.DataType) -> int:
    t = pa.types
    if t.is_null(kind):
        return NOTHING
    if t.is_string(kind) or t.is_binary(kind):
        return TEXT
    if t.is_large_string(kind) or t.is_large_binary(kind):
        return LARGE_TEXT
    if t.is_list(kind) or t.is_map(kind):
        return LIST
    if t.is_large_list(kind):
        return LARGE_LIST
    if t.is_struct(kind) or t.is_fixed_size_list(kind):
        return STRUCT
    return UNION if t.is_union(kind) else FIXED


def _children(kind: pa.DataType, layout: int) -> Iterator[tuple[pa.DataType, int]]:
    """Return the types in a type, and how many values of each a value has at least."""
    each = {STRUCT: 1, UNION: 1}.get(layout, 0)  # of a list its offsets tell
    if pa.types.is_fixed_size_list(kind):
        each = kind.list_size
    for i in range(kind.num_fields):
        yield kind.field(i).type, each


def _type_codes(kind: pa.DataType) -> tuple[int, int]:
    """Return the codes of a union's types as bits of two words."""
    bits = sum(1 << code for code in kind.type_codes) if pa.types.is_union(kind) else 0
    words = np.array([bits % (1 << _WORD), bits >> _WORD], dtype=np.uint64).view(np.int64)
    return int(words[0]), int(words[1])
