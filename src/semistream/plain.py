"""Plain Arrow: the types that the engine holds, and how many bytes a row of them takes.

Dictionaries, views and run-end encoding share memory between rows, so a bounded window cannot
own them: what one row keeps alive has no bound. They are decoded where rows enter (pages, window)
and encoded again where rows leave, so that the output has exactly the types that went in.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import SchemaError

__all__ = ["decode", "encode", "plain_schema", "plain_type", "row_bytes", "row_width"]

_SAME = {
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
}


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Give the type in which the engine holds values of type ``kind``.

    Examples
    --------
    >>> plain_type(pa.list_(pa.dictionary(pa.int8(), pa.string())))
    ListType(list<item: string>)
    """
    t = pa.types
    if kind in _SAME:
        return _SAME[kind]
    if t.is_dictionary(kind) or t.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if t.is_struct(kind):
        return pa.struct([field.with_type(plain_type(field.type)) for field in kind])
    if t.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type), kind.keys_sorted)
    if t.is_fixed_size_list(kind):
        return pa.list_(_plain_item(kind), kind.list_size)
    if t.is_large_list(kind) or t.is_large_list_view(kind):
        return pa.large_list(_plain_item(kind))
    if t.is_list(kind) or t.is_list_view(kind):
        return pa.list_(_plain_item(kind))
    return kind


def _plain_item(kind: pa.DataType) -> pa.Field:
    if _is_list_view(kind.value_type):
        msg = f"{kind}: a list view inside a list is not supported; cast it to a list first."
        raise SchemaError(msg)
    return kind.value_field.with_type(plain_type(kind.value_type))


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Give ``schema`` with every field in its plain type."""
    return pa.schema([field.with_type(plain_type(field.type)) for field in schema])


def decode(array: pa.Array) -> pa.Array:
    """Bring an array into its plain type; most arrays come back as they are."""
    if pa.types.is_run_end_encoded(array.type):
        return decode(pc.run_end_decode(array))
    if _is_list_view(array.type):
        return _decode_list_view(array)
    target = plain_type(array.type)
    return array if target == array.type else array.cast(target)


def _is_list_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def _decode_list_view(array: pa.Array) -> pa.Array:
    # Not by cast: Arrow 26 casts a list view with nulls to a list with the wrong offsets.
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    kind, mask = plain_type(array.type), array.is_null() if array.null_count else None
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    build = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    items, index = decode(array.flatten()), pa.int64() if build is pa.LargeListArray else pa.int32()
    return build.from_arrays(pa.array(offsets, index), items, type=kind, mask=mask)


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
    if t.is_dictionary(kind):
        return _encode_dictionary(array, kind)
    if t.is_run_end_encoded(kind):
        return pc.run_end_encode(encode(array, kind.value_type), run_end_type=kind.run_end_type)
    if t.is_struct(kind):
        children = [encode(array.field(i), kind[i].type) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    if t.is_map(kind) or t.is_nested(kind):
        return _encode_list(array, kind)
    return array.cast(kind)


def _encode_dictionary(array: pa.Array, kind: pa.DictionaryType) -> pa.DictionaryArray:
    values = array.dictionary_encode()
    return pa.DictionaryArray.from_arrays(
        values.indices.cast(kind.index_type),
        encode(values.dictionary, kind.value_type),
        ordered=kind.ordered,
    )


def _encode_list(array: pa.Array, kind: pa.DataType) -> pa.Array:
    t, mask = pa.types, array.is_null() if array.null_count else None
    if t.is_map(kind):
        keys, items = encode(array.keys, kind.key_type), encode(array.items, kind.item_type)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=kind, mask=mask)
    values = encode(array.values, kind.value_type)
    if t.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=mask)
    if t.is_list(kind):
        return pa.ListArray.from_arrays(array.offsets, values, type=kind, mask=mask)
    if t.is_large_list(kind):
        return pa.LargeListArray.from_arrays(array.offsets, values, type=kind, mask=mask)
    view = pa.ListViewArray if t.is_list_view(kind) else pa.LargeListViewArray
    sizes = pc.subtract(array.offsets[1:], array.offsets[:-1])
    return view.from_arrays(array.offsets[:-1], sizes, values, type=kind, mask=mask)


def row_width(kind: pa.DataType) -> int | None:
    """Give the bytes that each value of a plain type takes, or None where they vary."""
    t = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return row_width(kind.storage_type)
    if t.is_null(kind):
        return 0
    if t.is_struct(kind):
        return _total([row_width(field.type) for field in kind])
    if t.is_fixed_size_list(kind):
        item = row_width(kind.value_type)
        return None if item is None else item * kind.list_size
    if t.is_primitive(kind) or t.is_fixed_size_binary(kind) or t.is_decimal(kind):
        return max(1, int(kind.bit_width) // 8)
    return None


def _total(widths: list[int | None]) -> int | None:
    known = [width for width in widths if width is not None]
    return sum(known) if len(known) == len(widths) else None


def row_bytes(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Give the bytes that each row of a plain batch takes, one validity bit a column included.

    Examples
    --------
    >>> batch = pa.record_batch({"id": [1, 2], "name": ["pen", "a blue pen"]})
    >>> row_bytes(batch).tolist()
    [16, 23]
    """
    total = np.full(batch.num_rows, (batch.num_columns + 7) // 8, dtype=np.int64)
    for column in batch.columns:
        total += _value_bytes(column)
    return total


def _value_bytes(array: pa.Array) -> npt.NDArray[np.int64] | int:
    t, kind = pa.types, array.type
    if (width := row_width(kind)) is not None:
        return width
    if isinstance(kind, pa.BaseExtensionType):
        return _value_bytes(array.storage)
    if t.is_struct(kind):
        parts = [_value_bytes(array.field(i)) for i in range(kind.num_fields)]
        return sum(parts[1:], start=np.broadcast_to(parts[0], len(array)).astype(np.int64))
    if t.is_fixed_size_list(kind):
        return _items_bytes(array.flatten(), np.arange(len(array) + 1) * kind.list_size)
    if t.is_list(kind) or t.is_large_list(kind) or t.is_map(kind):
        return _items_bytes(array.values, array.offsets.to_numpy(zero_copy_only=False)) + 8
    if t.is_union(kind):
        return -(-int(array.nbytes) // max(1, len(array)))
    lengths = pc.binary_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    offset = 8 if kind in {pa.large_string(), pa.large_binary()} else 4
    return np.asarray(lengths, dtype=np.int64) + offset


def _items_bytes(values: pa.Array, offsets: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    each = np.broadcast_to(_value_bytes(values), len(values))
    before = np.concatenate([[0], np.cumsum(each)])
    sums: npt.NDArray[np.int64] = before[offsets[1:]] - before[offsets[:-1]]
    return sums
