"""Every key type and every payload type: what pages hold is what the source held."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.arrow.keys import Keys
from semistream.arrow.types import decode, encode, plain_type, row_bytes
from semistream.errors import SchemaError

ROWS = 15


def _text(i: int) -> str:
    return "" if i % 6 == 0 else f"a text that is longer than an inline view {i}" * (i % 3)


def _dense_union() -> pa.Array:
    types, offsets = [0, 5, 0, 5, 5] * 3, [0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 4, 6, 5, 7, 8]
    children = [pa.array([7, None] * 3), pa.array(["u", None, "w"] * 3)]
    places = pa.array(types, pa.int8()), pa.array(offsets, pa.int32())
    return pa.UnionArray.from_dense(*places, children, ["i", "s"], [0, 5])


def _leaves() -> dict[str, pa.Array]:
    """Fifteen values, some null, of each type that is not made of others."""
    n, holes = range(ROWS), [i % 5 != 1 for i in range(ROWS)]

    def some(kind: pa.DataType, values: list[object]) -> pa.Array:
        pairs = zip(values, holes, strict=True)
        return pa.array([value if kept else None for value, kept in pairs], kind)

    texts, moments = [_text(i) for i in n], [dt.datetime(2020, 1, 1 + i) for i in n]
    runs = pa.array([4, 9, ROWS], pa.int32()), pa.array(["p", None, "q"])
    parts = pa.array([i % 2 for i in n], pa.int8()), [pa.array(n), pa.array(texts)]
    ids = some(pa.binary(16), [bytes([i]) * 16 for i in n])
    return {
        "int8": some(pa.int8(), list(n)),
        "uint64": some(pa.uint64(), [2**64 - 1 - i for i in n]),
        "float16": some(pa.float16(), [np.float16(i / 2) for i in n]),
        "double": some(pa.float64(), [i / 3 for i in n]),
        "bool": some(pa.bool_(), [i % 2 == 0 for i in n]),
        "null": pa.nulls(ROWS),
        "date64": some(pa.date64(), moments),
        "time": some(pa.time64("us"), [moment.time() for moment in moments]),
        "timestamp": some(pa.timestamp("ns", "Europe/Zurich"), moments),
        "duration": some(pa.duration("ms"), [dt.timedelta(days=i) for i in n]),
        "interval": some(pa.month_day_nano_interval(), [(i, 1, 2) for i in n]),
        "decimal32": some(pa.decimal32(5, 2), [Decimal(i) / 4 for i in n]),
        "decimal256": some(pa.decimal256(50, 2), [Decimal(10**40 + i) for i in n]),
        "string": some(pa.string(), texts),
        "large_string": some(pa.large_string(), texts),
        "string_view": some(pa.string_view(), texts),
        "binary": some(pa.binary(), [text.encode() for text in texts]),
        "binary_view": some(pa.binary_view(), [text.encode() for text in texts]),
        "fixed": some(pa.binary(5), [b"%5d" % i for i in n]),
        "dictionary": some(pa.dictionary(pa.int8(), pa.string()), [text[:3] for text in texts]),
        "run_end_encoded": pa.RunEndEncodedArray.from_arrays(*runs),
        "list_view": some(pa.list_view(pa.int64()), [[i] * (i % 4) for i in n]),
        "sparse_union": pa.UnionArray.from_sparse(*parts),
        "dense_union": _dense_union(),
        "uuid": pa.ExtensionArray.from_storage(pa.uuid(), ids),
    }


def _nested(leaf: pa.Array) -> dict[str, pa.Array]:
    """All types made of one other; nulls at every level, list views out of order."""
    bounds = pa.array([0, 2, 2, 5, 7, len(leaf)], pa.int32())
    empty = pa.array([False, False, True, False, False])
    starts, sizes = pa.array([3, 0, 2, 5, 7], pa.int32()), pa.array([2, 2, 3, 0, 8], pa.int32())
    names, rows = pa.array([str(i) for i in range(len(leaf))]), pa.array(range(len(leaf)))
    every_third = pa.array([i % 3 == 2 for i in range(len(leaf))])
    ends = pa.array(range(1, len(leaf) + 1), pa.int32())
    types = pa.array([0, 1, 0, 1], pa.int8()), pa.array([0, 0, 3, 1], pa.int32())
    return {
        "struct": pa.StructArray.from_arrays([leaf, rows], ["a", "b"], mask=every_third),
        "list": pa.ListArray.from_arrays(bounds, leaf, mask=empty),
        "large_list": pa.LargeListArray.from_arrays(bounds.cast(pa.int64()), leaf, mask=empty),
        "list_view": pa.ListViewArray.from_arrays(starts, sizes, leaf, mask=empty),
        "map": pa.MapArray.from_arrays(bounds, names, leaf, mask=empty),
        "fixed_list": pa.FixedSizeListArray.from_arrays(leaf, 3, mask=empty),
        "dictionary": pa.DictionaryArray.from_arrays(pa.array([3, None, 1, 0, 3], pa.int8()), leaf),
        "run_end_encoded": pa.RunEndEncodedArray.from_arrays(ends, leaf),
        "dense_union": pa.UnionArray.from_dense(*types, [leaf, pa.array(["k", "l"])]),
    }


def _stored(value: object) -> object:
    """Give what the storage of an extension type gives for a value."""
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, dict):
        return {name: _stored(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_stored(item) for item in value]
    return value


def _check_plain(array: pa.Array) -> None:
    want, plain = array.to_pylist(), decode(array)
    plain.validate(full=True)
    assert plain.type == plain_type(array.type)
    assert _stored(plain.to_pylist()) == _stored(want)
    for given, expected in ((plain, want), (plain.slice(1), want[1:])):
        back = encode(given, array.type)
        back.validate(full=True)
        assert back.type == array.type
        assert back.to_pylist() == expected


def test_a_null_above_a_dictionary_without_values_is_decoded() -> None:
    kind = pa.dictionary(pa.int16(), pa.string())
    inner = pa.struct([("n", pa.int32()), ("word", kind)])
    for outer in (inner, pa.list_(kind, 2), pa.list_(inner)):
        for values in ([None], [{"x": None}]):
            array = pa.array(values, pa.struct([("x", outer)]))
            assert decode(array).to_pylist() == values


@pytest.mark.parametrize("name", _leaves())
def test_decoding_and_encoding_keep_values_of_any_nesting_and_any_slice(name: str) -> None:
    leaf = _leaves()[name]
    once = _nested(leaf)
    deep = [
        array for outer in ("struct", "run_end_encoded") for array in _nested(once[outer]).values()
    ]
    for array in (leaf, *once.values(), *deep):
        for start, length in ((0, len(array)), (1, len(array) - 2), (2, 2), (0, 0)):
            _check_plain(array.slice(start, length))


_NOT_IN_FILES = ("dictionary<dictionary>", "dictionary<uuid>")


@pytest.mark.parametrize("name", _NOT_IN_FILES)
def test_types_that_no_arrow_file_can_hold_are_refused_before_anything_is_read(
    name: str, tmp_path
) -> None:
    outer, inner = name.rstrip(">").split("<")
    value = _nested(_leaves()[inner])[outer]
    source = pa.record_batch({"id": range(len(value)), "value": value})
    with pytest.raises(SchemaError, match=r"column 'value': Arrow's format does not keep"):
        ss.build_master(source, tmp_path / "m", key="id")
    assert not (tmp_path / "m").exists()


def _payloads() -> dict[str, pa.Array]:
    leaves = _leaves()
    nested = {
        f"{outer}<{name}>": array
        for name in ("string", "dictionary", "string_view", "uuid", "list_view", "bool")
        for outer, array in _nested(leaves[name]).items()
        if f"{outer}<{name}>" not in _NOT_IN_FILES
    }
    return leaves | nested


def _pages(master: ss.Master) -> pa.RecordBatch:
    reader, parts = master.reader(), range(master.statistics.parts)
    # Copies, for a direct reader's batches live in its buffer.
    return pa.concat_batches([pa.concat_batches(reader.load(part, 1)) for part in parts])


def _restored(master: ss.Master) -> pa.Table:
    """Read all pages and bring them into the source's schema."""
    rows, fields = _pages(master), master.schema
    codes = rows.column(0)
    assert codes.to_pylist() == sorted(codes.to_pylist())
    columns = []
    for field in fields:
        stored = field.name in rows.schema.names
        column = rows.column(field.name) if stored else master.keys.decode(codes)
        columns.append(encode(column, field.type))
    return pa.Table.from_arrays(columns, schema=fields)


def _sorted(table: pa.Table, keys: Keys) -> list[dict[str, object]]:
    """Give the rows with a key, in the order of their codes; equal codes keep their order."""
    rows = table.combine_chunks().to_batches()[0]
    codes = keys.encode([rows.column(name) for name in keys.names])
    order = [i for i in np.argsort(codes.values, kind="stable") if codes.valid[i]]
    values = rows.to_pylist()
    return [values[i] for i in order]


@pytest.mark.parametrize("name", _payloads())
def test_pages_hold_the_rows_of_the_source(name: str, tmp_path) -> None:
    once = _payloads()[name]
    batches = []
    for i in range(40):  # pieces of many lengths and offsets
        piece = once.slice(i % 3, len(once) - i % 4)
        ids = (np.arange(len(piece)) + 100 * i) * 7919 % 97
        batches.append(pa.record_batch({"id": pa.array(ids, pa.int16()), "value": piece}))
    source = pa.RecordBatchReader.from_batches(batches[0].schema, batches)
    master = ss.build_master(source, tmp_path, key="id", page_bytes="4KB", memory="32KB")
    rows = [row for batch in batches for row in batch.to_pylist()]
    rows.sort(key=lambda row: row["id"])
    for opened in (master, ss.open_master(tmp_path, read="direct")):
        assert _restored(opened).schema == batches[0].schema
        assert _restored(opened).to_pylist() == rows
    assert master.statistics.bytes == row_bytes(_pages(master)).sum()
    assert master.statistics.widest_row == row_bytes(_pages(master)).max()
    assert (master.index.length[master.index.rows > 1] <= 4096).all()


KEYS = {
    **{
        str(t): (t, [3, -1, None, 7, 3, 0]) for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64())
    },
    **{str(t): (t, [3, 1, None, 7, 3, 0]) for t in (pa.uint8(), pa.uint16(), pa.uint32())},
    "uint64": (pa.uint64(), [2**64 - 1, 0, None, 2**63, 2**63 - 1, 2**63]),
    "bool": (pa.bool_(), [True, None, False, True]),
    "date32": (pa.date32(), [dt.date(2020, 1, 2), None, dt.date(1969, 1, 1)]),
    "date64": (pa.date64(), [dt.date(2020, 1, 2), None, dt.date(1969, 1, 1)]),
    "timestamp": (pa.timestamp("us", "UTC"), [dt.datetime(2020, 1, 2, 3, 4, 5, 6), None]),
    "timestamp_s": (pa.timestamp("s"), [dt.datetime(2020, 1, 2), dt.datetime(1950, 1, 2)]),
    "decimal64": (pa.decimal64(10, 2), [Decimal("1.25"), None, Decimal("-7.5")]),
    "decimal128": (pa.decimal128(30, 2), [Decimal("1.25"), None, Decimal("-7.5")]),
    "decimal256": (pa.decimal256(60, 2), [Decimal(10**50), None, Decimal("-7.5")]),
    "string": (pa.string(), ["b", "", None, "a long key, longer than eight bytes", "b"]),
    "large_string": (pa.large_string(), ["b", "", None, "ä long key", "b"]),
    "string_view": (pa.string_view(), ["b", "", None, "ä long key, not inline", "b"]),
    "binary": (pa.binary(), [b"\0", b"", None, b"\0\0", b"\0"]),
    "fixed": (pa.binary(3), [b"abc", None, b"abd"]),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["x", None, "y", "x"]),
    "run_end_encoded": (pa.run_end_encoded(pa.int32(), pa.int64()), [5, 5, None, 2]),
}


@pytest.mark.parametrize("name", KEYS)
def test_every_key_type_alone_and_in_a_composite(name: str, tmp_path) -> None:
    kind, values = KEYS[name]
    column = pa.array(values * 40, kind).slice(1)  # an offset, as slices have
    table = pa.table({"key": column, "other": pa.array([i % 3 for i in range(len(column))])})
    table = table.append_column("row", pa.array(range(len(column))))
    for key in ("key", ["key", "other"], ["other", "key"]):
        master = ss.build_master(table, tmp_path, key=key, page_bytes="4KB", memory="64KB")
        assert master.keys.exact == (key == "key" and pa.types.is_integer(plain_type(kind)))
        assert _restored(master).to_pylist() == _sorted(table, master.keys)
        assert master.statistics.null_keys == table["key"].to_pylist().count(None)
        used = {tuple(row[n] for n in master.key) for row in table.to_pylist()}
        assert master.statistics.values == len({k for k in used if None not in k})


@pytest.mark.parametrize("name", KEYS)
def test_an_empty_master_of_every_key_type(name: str, tmp_path) -> None:
    empty = pa.table({"key": pa.array([], KEYS[name][0]), "value": pa.array([], pa.string())})
    for key in ("key", ["key", "value"]):
        master = ss.build_master(empty, tmp_path, key=key)
        assert (master.rows, master.pages, master.verify()) == (0, 0, 0)
        assert master.page_of(np.array([-1, 0, 5])).tolist() == [-1, -1, -1]


def test_the_order_of_an_integer_key_is_that_of_its_values(tmp_path) -> None:
    values = [2**64 - 1, 0, 2**63, 2**63 - 1, 7]
    table = pa.table({"id": pa.array(values, pa.uint64())})
    master = ss.build_master(table, tmp_path, key="id")
    assert _restored(master)["id"].to_pylist() == sorted(values)


@pytest.mark.parametrize(
    "kind", [pa.float64(), pa.null(), pa.list_(pa.int8()), pa.duration("s"), pa.uuid()]
)
def test_other_types_are_no_keys(kind: pa.DataType, tmp_path) -> None:
    table = pa.table({"key": pa.nulls(2, kind)})
    with pytest.raises(SchemaError, match=r"column 'key' of type .* cannot be a join key"):
        ss.build_master(table, tmp_path / "m", key="key")
    assert not (tmp_path / "m").exists()


def test_codes_do_not_depend_on_slices_and_encodings() -> None:
    texts = ["a", "bc", "a", None, "a longer text than eight bytes"] * 3
    whole = pa.array(texts)
    keys = Keys.of(pa.schema([("k", pa.string())]), ["k"])
    want = keys.encode([whole]).values
    for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int16(), pa.string())):
        codes = keys.encode([pa.array(texts, kind).slice(2, 9)])
        assert codes.values[codes.valid].tolist() == want[2:11][codes.valid].tolist()


def test_numbers_that_the_master_cannot_hold_match_nothing() -> None:
    signed = Keys.of(pa.schema([("k", pa.int32())]), ["k"])
    unsigned = Keys.of(pa.schema([("k", pa.uint64())]), ["k"])
    assert signed.encode([pa.array([2**63, 5], pa.uint64())]).valid.tolist() == [False, True]
    assert unsigned.encode([pa.array([-1, 5], pa.int64())]).valid.tolist() == [False, True]
    five = unsigned.encode([pa.array([5], pa.int8())]).values
    assert five.tolist() == unsigned.encode([pa.array([5], pa.uint64())]).values.tolist()
