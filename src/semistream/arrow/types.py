"""Plain Arrow: the types that the engine holds, and how many bytes a row of them takes.

Dictionaries, views, run-end encoding and dense unions share memory between rows, so a bounded
window cannot own them: what one row keeps alive has no bound. They are decoded where rows enter
(pages, window) and encoded again where rows leave, so that the output has exactly the types that
went in. So are extension types, which many of Arrow's kernels do not take. Both ways go down into
nested types by hand: Arrow's own casts lack many of these pairs, and Arrow 26 casts a list view
with nulls to a list with the wrong offsets.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

__all__ = [
    "buffer",
    "cast",
    "decode",
    "encode",
    "items_of",
    "plain_schema",
    "plain_type",
    "row_bytes",
    "row_width",
]

_SAME = {
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
}
_LISTS = {
    pa.lib.Type_LIST: pa.ListArray,
    pa.lib.Type_LARGE_LIST: pa.LargeListArray,
}
_VIEWS = {
    pa.lib.Type_LIST_VIEW: pa.ListViewArray,
    pa.lib.Type_LARGE_LIST_VIEW: pa.LargeListViewArray,
}


@cache
def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which the engine holds values of type ``kind``.

    Examples
    --------
    >>> plain_type(pa.list_(pa.dictionary(pa.int8(), pa.string())))
    ListType(list<item: string>)
    """
    t = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if t.is_dictionary(kind) or t.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if t.is_struct(kind):
        return pa.struct([_plain_field(field) for field in kind])
    if t.is_map(kind):
        return pa.map_(
            _plain_field(kind.key_field), _plain_field(kind.item_field), kind.keys_sorted
        )
    if t.is_fixed_size_list(kind):
        return pa.list_(_plain_field(kind.value_field), kind.list_size)
    if t.is_large_list(kind) or t.is_large_list_view(kind):
        return pa.large_list(_plain_field(kind.value_field))
    if t.is_list(kind) or t.is_list_view(kind):
        return pa.list_(_plain_field(kind.value_field))
    if t.is_union(kind):
        return pa.sparse_union([_plain_field(field) for field in kind], kind.type_codes)
    return _SAME.get(kind, kind)


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain_type(field.type))


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return ``schema`` with every field in its plain type."""
    return pa.schema([_plain_field(field) for field in schema])


def decode(array: pa.Array) -> pa.Array:
    """Bring an array into its plain type; most arrays come back as they are.

    Examples
    --------
    >>> decode(pa.array(["a", "b", "a"]).dictionary_encode()).to_pylist()
    ['a', 'b', 'a']
    """
    t, kind, target = pa.types, array.type, plain_type(array.type)
    if target == kind:
        return array
    if isinstance(kind, pa.BaseExtensionType):
        return decode(array.storage)
    if t.is_run_end_encoded(kind):
        return _decode_runs(array)
    if t.is_dictionary(kind):
        values = decode(array.dictionary)
        # Below a null, Arrow itself leaves indices into an empty dictionary.
        return values.take(array.indices) if len(values) else pa.nulls(len(array), target)
    if _is_dense(kind):
        return _sparse(array, target)
    if not t.is_nested(kind):
        return array.cast(target)
    return _rebuilt(array, target, lambda child, _: decode(child))


def _is_dense(kind: pa.DataType) -> bool:
    return bool(pa.types.is_union(kind) and kind.mode == "dense")


def _decode_runs(array: pa.Array) -> pa.Array:
    return decode(array.values).take(pa.array(_runs(array)))


def _runs(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return the run of each value."""
    rows = np.arange(array.offset, array.offset + len(array))
    return np.searchsorted(array.run_ends.to_numpy(), rows, side="right")


def encode(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Bring a plain array back into type ``kind``, the inverse of `decode`.

    Examples
    --------
    >>> encode(pa.array(["a", "b", "a"]), pa.dictionary(pa.int8(), pa.string())).type
    DictionaryType(dictionary<values=string, indices=int8, ordered=0>)
    """
    t = pa.types
    if array.type == kind:
        return array
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, encode(array, kind.storage_type))
    if t.is_dictionary(kind):
        return _encode_dictionary(array, kind)
    if t.is_run_end_encoded(kind):
        return _encode_runs(array, kind)
    if _is_dense(kind):
        return _dense(array, kind)
    if not t.is_nested(kind):
        return array.cast(kind)
    return _rebuilt(array, kind, encode)


def cast(array: pa.Array, kind: pa.DataType, safe: bool = True) -> pa.Array:
    """Return an array in type ``kind``; one that has it comes back as it is.

    Nested types are cast child by child: Arrow 26 refuses a null struct whose fields are required,
    even where it is cast to its own type.

    Examples
    --------
    >>> point = pa.struct([pa.field("x", pa.int32(), nullable=False)])
    >>> cast(pa.array([{"x": 1}], point).take(pa.array([0, None])), point).to_pylist()
    [{'x': 1}, None]
    """
    if array.type == kind:
        return array
    plain = decode(array)  # Arrow casts few of the types that it reads
    if plain.type == kind:
        return plain
    if _is_alike(plain.type, kind):
        return _rebuilt(plain, kind, lambda child, inner: cast(child, inner, safe))
    return plain.cast(kind, safe=safe)


def _is_alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether children correspond by position."""
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return [field.name for field in one] == [field.name for field in other]
    return bool(one.id == other.id and pa.types.is_nested(one) and not pa.types.is_union(one))


def _encode_dictionary(array: pa.Array, kind: pa.DictionaryType) -> pa.DictionaryArray:
    try:
        values = array.dictionary_encode()
    except pa.ArrowNotImplementedError:  # nested types, extensions: a dictionary of every value
        indices = pa.array(np.arange(len(array)), mask=np.asarray(array.is_null()))
        values = pa.DictionaryArray.from_arrays(indices, array)
    return pa.DictionaryArray.from_arrays(
        values.indices.cast(kind.index_type),
        encode(values.dictionary, kind.value_type),
        ordered=kind.ordered,
    )


def _encode_runs(array: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        runs = pc.run_end_encode(array, run_end_type=kind.run_end_type)
    except pa.ArrowNotImplementedError:  # nested types, extensions: each value is a run
        ends = pa.array(np.arange(1, len(array) + 1)).cast(kind.run_end_type)
        return pa.RunEndEncodedArray.from_arrays(ends, encode(array, kind.value_type), type=kind)
    values = encode(runs.values, kind.value_type)
    return pa.RunEndEncodedArray.from_arrays(runs.run_ends, values, type=kind)


def _rebuilt(
    array: pa.Array, kind: pa.DataType, convert: Callable[[pa.Array, pa.DataType], pa.Array]
) -> pa.Array:
    """Make a nested array of type ``kind``, its children converted from those of ``array``."""
    t, mask = pa.types, array.is_null() if array.null_count else None
    if t.is_struct(kind):
        children = [convert(array.field(i), kind[i].type) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if t.is_union(kind):
        children = [convert(array.field(i), kind[i].type) for i in range(kind.num_fields)]
        types = pa.py_buffer(_type_ids(array).tobytes())
        return pa.Array.from_buffers(kind, len(array), [None, types], children=children)
    if t.is_fixed_size_list(kind):
        items = convert(_fixed_items(array), kind.value_type)
        return pa.FixedSizeListArray.from_arrays(items, type=kind, mask=mask)
    bounds, items = _items(array)
    if t.is_map(kind):
        keys, values = (convert(items.field(i), kind.field(0).type[i].type) for i in (0, 1))
        return pa.MapArray.from_arrays(
            pa.array(bounds, pa.int32()), keys, values, type=kind, mask=mask
        )
    return _list(bounds, convert(items, kind.value_type), kind, mask)


def _list(
    bounds: npt.NDArray[np.int64], items: pa.Array, kind: pa.DataType, mask: pa.Array | None
) -> pa.Array:
    large = pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind)
    offsets = pa.array(bounds, pa.int64() if large else pa.int32())
    if kind.id in _LISTS:
        return _LISTS[kind.id].from_arrays(offsets, items, type=kind, mask=mask)
    sizes = pa.array(np.diff(bounds), offsets.type)
    return _VIEWS[kind.id].from_arrays(offsets[:-1], sizes, items, type=kind, mask=mask)


def _items(array: pa.Array) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """Return the items of a list, list view or map, and where each value's items begin and end.

    Only the items of these values: of a slice, not those of the array that it was cut from.
    """
    if not len(array):
        return np.zeros(1, dtype=np.int64), array.values.slice(0, 0)
    if array.type.id in _VIEWS:
        return _view_items(array)
    bounds = array.offsets.to_numpy().astype(np.int64)
    start = int(bounds[0])
    return bounds - start, array.values.slice(start, int(bounds[-1]) - start)


def _view_items(array: pa.Array) -> tuple[npt.NDArray[np.int64], pa.Array]:
    dtype = np.int64 if pa.types.is_large_list_view(array.type) else np.int32
    sizes = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    starts = np.where(sizes > 0, buffer(array, 1, dtype), 0).astype(np.int64)
    bounds = np.append(0, np.cumsum(sizes, dtype=np.int64))
    index = np.arange(bounds[-1]) + np.repeat(starts - bounds[:-1], sizes)
    first, end = int(index.min(initial=len(array.values))), int(index.max(initial=-1)) + 1
    items = decode(array.values.slice(first, max(0, end - first)))
    return bounds, items.take(pa.array(index - first))


def items_of(array: pa.Array) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """Return where the items of each list or map begin and end, and the items.

    Examples
    --------
    >>> bounds, items = items_of(pa.array([[1], [], [2, 3]]).slice(1))
    >>> bounds.tolist(), items.to_pylist()
    ([0, 0, 2], [2, 3])
    """
    if not pa.types.is_fixed_size_list(array.type):
        return _items(array)
    bounds = np.arange(len(array) + 1, dtype=np.int64) * array.type.list_size
    return bounds, _fixed_items(array)


def _fixed_items(array: pa.Array) -> pa.Array:
    size = array.type.list_size
    return array.values.slice(array.offset * size, len(array) * size)


def buffer(array: pa.Array, number: int, dtype: type, more: int = 0) -> npt.NDArray[Any]:
    """Return one of an array's buffers as NumPy sees it, cut to its rows and ``more``.

    Examples
    --------
    >>> buffer(pa.array([1, 2, 3]).slice(1), 1, np.int64).tolist()
    [2, 3]
    """
    content = array.buffers()[number]  # an empty array may have none
    values: npt.NDArray[Any] = np.frombuffer(b"" if content is None else content, dtype=dtype)
    return values[array.offset :][: len(array) + more]


def _type_ids(array: pa.Array) -> npt.NDArray[np.int8]:
    return buffer(array, 1, np.int8)  # not `type_codes`: it ignores that the array is a slice


def _sparse(array: pa.UnionArray, kind: pa.SparseUnionType) -> pa.Array:
    types, offsets = _type_ids(array), buffer(array, 2, np.int32)
    children = []
    for i, code in enumerate(kind.type_codes):
        mine = pa.array(offsets, mask=types != code)
        children.append(decode(array.field(i)).take(mine))
    buffers = [None, pa.py_buffer(types.tobytes())]
    return pa.Array.from_buffers(kind, len(array), buffers, children=children)


def _dense(array: pa.Array, kind: pa.DenseUnionType) -> pa.Array:
    types = _type_ids(array)
    offsets = np.zeros(len(array), dtype=np.int32)
    children = []
    for i, code in enumerate(kind.type_codes):
        mine = np.flatnonzero(types == code)
        offsets[mine] = np.arange(len(mine))
        children.append(encode(array.field(i).take(pa.array(mine)), kind[i].type))
    buffers = [None, pa.py_buffer(types.tobytes()), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, len(array), buffers, children=children)


@cache
def row_width(kind: pa.DataType) -> int | None:
    """Return the bytes that each value of a plain type takes, or None where they vary.

    A validity bit counts for each child of a nested type; that of the value itself does not.
    """
    t = pa.types
    if t.is_null(kind):
        return 0
    if t.is_struct(kind) or t.is_union(kind):
        widths = [row_width(field.type) for field in kind]
        known = [width for width in widths if width is not None]
        own = _bits(len(widths)) + t.is_union(kind)  # a union has a byte that tells the child
        return sum(known) + own if len(known) == len(widths) else None
    if t.is_fixed_size_list(kind):
        item = row_width(kind.value_type)
        return None if item is None else item * kind.list_size + _bits(kind.list_size)
    if t.is_primitive(kind) or t.is_fixed_size_binary(kind) or t.is_decimal(kind):
        return -(-int(kind.bit_width) // 8)
    return None


def _bits(count: Any) -> Any:  # noqa: ANN401 - a number, or an array of them
    """Return the bytes of so many validity bits."""
    return (count + 7) // 8


def row_bytes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the bytes that each row takes when it is plain, one validity bit a column included.

    A dictionary is not decoded for it: its values are measured, and their sizes taken.

    Examples
    --------
    >>> batch = pa.record_batch({"id": [1, 2], "name": ["pen", "a blue pen"]})
    >>> row_bytes(batch).tolist()
    [16, 23]
    """
    each = [_value_bytes(column) for column in batch.columns]
    same = sum(size for size in each if isinstance(size, int))
    total = np.full(batch.num_rows, _bits(batch.num_columns) + same, dtype=np.int64)
    for sizes in each:
        if not isinstance(sizes, int):
            total += sizes
    return total


def _value_bytes(array: pa.Array) -> npt.NDArray[np.int64] | int:
    t, kind = pa.types, array.type
    if (width := row_width(plain_type(kind))) is not None:
        return width
    if t.is_dictionary(kind):
        indices: npt.NDArray[np.int64] = array.indices.fill_null(0).to_numpy().astype(np.int64)
        return np.take(_sizes_of(array.dictionary), indices)
    if t.is_run_end_encoded(kind):
        return np.take(_sizes_of(array.values), _runs(array))
    if plain_type(kind) != kind:
        return _value_bytes(decode(array))
    if t.is_struct(kind) or t.is_union(kind):
        own = _bits(kind.num_fields) + t.is_union(kind)
        total = np.full(len(array), own, dtype=np.int64)
        for i in range(kind.num_fields):
            total += _value_bytes(array.field(i))
        return total
    if t.is_nested(kind):
        bounds, items = items_of(array)
        return _items_bytes(items, bounds) + (0 if t.is_fixed_size_list(kind) else 8)
    offset = np.int64 if kind in {pa.large_string(), pa.large_binary()} else np.int32
    lengths = np.diff(buffer(array, 1, offset, more=1)).astype(np.int64)
    return lengths + np.dtype(offset).itemsize


def _sizes_of(array: pa.Array) -> npt.NDArray[np.int64]:
    # One more, for indices into a dictionary that has no values, which only nulls have.
    return np.append(np.broadcast_to(_value_bytes(array), len(array)), 0).astype(np.int64)


def _items_bytes(values: pa.Array, bounds: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    each = np.broadcast_to(_value_bytes(values), len(values))
    before = np.append(0, np.cumsum(each, dtype=np.int64))
    sums: npt.NDArray[np.int64] = before[bounds[1:]] - before[bounds[:-1]] + _bits(np.diff(bounds))
    return sums
