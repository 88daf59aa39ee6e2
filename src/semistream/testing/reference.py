"""The reference: the result of a join by DuckDB, and the comparison of two results.

DuckDB joins row numbers; the rows themselves are gathered by Arrow. So every column type can be
compared, those that DuckDB does not keep too (dictionaries, views, 256-bit decimals).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.spec import resolve_how

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from semistream.spec import On

    Ids = npt.NDArray[np.int64]

__all__ = ["reference_join", "same_rows"]

_SHOWN = 3  # rows of each kind in a message
_VERBS = {"inner": "JOIN", "left": "LEFT JOIN", "semi": "SEMI JOIN", "anti": "ANTI JOIN"}


def reference_join(
    stream: pa.Table,
    master: pa.Table,
    *,
    on: On,
    how: str = "inner",
    select: Sequence[str] | None = None,
    prefix: str = "",
) -> pa.Table:
    """Join two tables with DuckDB; the result has the columns and types of a `Join`'s output.

    Parameters
    ----------
    stream, master
        Both sides, whole.
    on, how, select, prefix
        As for `semistream.Join`; ``on`` names columns of both sides.

    Examples
    --------
    >>> sales = pa.table({"id": [2, 2, None], "sale": [10, 11, 12]})
    >>> products = pa.table({"id": [1, 2], "name": ["pen", "ink"]})
    >>> reference_join(sales, products, on="id", how="left")["name"].to_pylist()
    ['ink', 'ink', None]
    """
    kind, keys = resolve_how(how), _pairs(on)
    left, right = _row_numbers(stream, master, keys, kind)
    fields, columns = list(stream.schema), [_take(c, left) for c in stream.columns]
    payload = [name for name in master.schema.names if name not in keys.values()]
    for name in (payload if select is None else select) if right is not None else ():
        field = master.schema.field(name)
        nullable = field.nullable or kind == "left"
        fields.append(field.with_name(prefix + name).with_nullable(nullable))
        columns.append(_take(master[name], right))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, stream.schema.metadata))


def _pairs(on: On) -> dict[str, str]:
    names = [on] if isinstance(on, str) else on
    return dict(names) if isinstance(names, Mapping) else {name: name for name in names}


def _row_numbers(
    stream: pa.Table, master: pa.Table, keys: Mapping[str, str], how: str
) -> tuple[pa.Array, pa.Array | None]:
    """Return the numbers of the rows that match, in the stream's order; null where none does."""
    ours, theirs = _numbered(stream, list(keys)), _numbered(master, list(keys.values()))
    condition = " AND ".join(f"s.k{i} = m.k{i}" for i in range(len(keys)))
    both = how in {"inner", "left"}
    columns, order = ("s.n AS s, m.n AS m", "s, m") if both else ("s.n AS s", "s")
    query = f"SELECT {columns} FROM ours s {_VERBS[how]} theirs m ON {condition} ORDER BY {order}"  # noqa: S608
    try:
        import duckdb  # noqa: PLC0415 - an extra
    except ImportError as error:
        msg = "semistream.testing needs duckdb: pip install 'semistream[testing]'"
        raise ImportError(msg) from error
    with duckdb.connect(config={"threads": 1}) as database:
        database.register("ours", ours)
        database.register("theirs", theirs)
        pairs = database.sql(query).to_arrow_table().combine_chunks()
    numbers = [pa.concat_arrays([*column.chunks, pa.array([], pa.int64())]) for column in pairs]
    return numbers[0], numbers[1] if both else None


def _numbered(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    columns = {f"k{i}": _comparable(table[name]) for i, name in enumerate(keys)}
    return pa.table({"n": pa.array(np.arange(table.num_rows)), **columns})


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Cast a key column to a type that DuckDB compares without loss."""
    column = _decode(column)
    t, kind = pa.types, column.type
    if t.is_timestamp(kind) or t.is_date64(kind):
        return column.cast(pa.int64())  # DuckDB has microseconds only
    return column.cast(pa.string()) if t.is_decimal256(kind) else column


def _take(column: pa.ChunkedArray, rows: pa.Array) -> pa.ChunkedArray:
    """Take rows of a column, whatever its type; a null number is a null row."""
    t, kind = pa.types, column.type
    if t.is_run_end_encoded(kind):
        ends = kind.run_end_type
        chunks = [pc.run_end_encode(c, ends) for c in _decode(column).take(rows).chunks]
        return pa.chunked_array(chunks, kind)
    if t.is_string_view(kind) or t.is_binary_view(kind):
        return _decode(column).take(rows).cast(kind)
    return _encode(_decode(column).take(rows), kind) if t.is_dictionary(kind) else column.take(rows)


def _encode(column: pa.ChunkedArray, kind: pa.DictionaryType) -> pa.ChunkedArray:
    """Encode a dictionary column, in chunks of no more values than its index type counts."""
    most = 2 ** min(20, kind.index_type.bit_width - 1)
    pieces = [c.slice(i, most) for c in column.chunks for i in range(0, len(c), most)]
    return pa.chunked_array([piece.dictionary_encode().cast(kind) for piece in pieces], kind)


def _decode(column: pa.ChunkedArray) -> pa.ChunkedArray:
    t, kind = pa.types, column.type
    if t.is_dictionary(kind):
        return _decode(column.cast(kind.value_type))
    if t.is_run_end_encoded(kind):
        chunks = [pc.run_end_decode(chunk) for chunk in column.chunks]
        return _decode(pa.chunked_array(chunks, kind.value_type))
    views = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return column.cast(views[kind]) if kind in views else column


def same_rows(found: pa.Table, expected: pa.Table) -> None:
    """Raise an AssertionError unless both tables hold the same rows equally often, in any order.

    Whole rows are compared, by value: how a column is encoded is part of its type, which must be
    the same, and nothing more.

    Examples
    --------
    >>> same_rows(pa.table({"a": [1, 2, 2]}), pa.table({"a": [2, 1, 2]}))
    >>> same_rows(pa.table({"a": [1, 2]}), pa.table({"a": [2, 2]}))
    Traceback (most recent call last):
        ...
    AssertionError: 2 rows found, 2 expected; 1 missing, 1 too many
      missing:  1 × {'a': 2}
      too many: 1 × {'a': 1}
    """
    assert found.schema.equals(expected.schema), (
        f"columns differ\nfound:\n{found.schema}\nexpected:\n{expected.schema}"
    )
    ids = _row_ids(found, expected)
    size = int(ids.max(initial=-1)) + 1
    ours, theirs = ids[: found.num_rows], ids[found.num_rows :]
    surplus = np.bincount(ours, minlength=size) - np.bincount(theirs, minlength=size)
    if surplus.any():
        raise AssertionError(_message(found, expected, (ours, theirs), surplus))


def _message(found: pa.Table, expected: pa.Table, ids: tuple[Ids, Ids], surplus: Ids) -> str:
    missing, extra = np.maximum(-surplus, 0), np.maximum(surplus, 0)
    lines = [
        f"{found.num_rows:,} rows found, {expected.num_rows:,} expected; {missing.sum():,} "
        f"missing, {extra.sum():,} too many"
    ]
    lines += [f"  missing:  {row}" for row in _some(expected, ids[1], missing)]
    lines += [f"  too many: {row}" for row in _some(found, ids[0], extra)]
    return "\n".join(lines)


def _some(table: pa.Table, ids: Ids, counts: Ids) -> list[str]:
    """Show the first rows that are counted, each with its count."""
    values, rows = np.unique(ids, return_index=True)
    first = np.sort(rows[counts[values] > 0])[:_SHOWN]
    return [f"{counts[ids[row]]} × {table.slice(row, 1).to_pylist()[0]}" for row in first]


def _row_ids(*tables: pa.Table) -> Ids:
    """Assign numbers to rows; equal rows, and no others, have the same."""
    rows = pa.concat_tables(tables)
    ids, size = np.zeros(rows.num_rows, dtype=np.int64), 1
    for column in rows.columns:
        values = _value_ids(column)
        count = int(values.max(initial=0)) + 1
        if size > 2**62 // count:
            ids, size = _dense(ids)
        ids, size = ids * count + values, size * count
    return _dense(ids)[0]


def _dense(ids: Ids) -> tuple[Ids, int]:
    values, dense = np.unique(ids, return_inverse=True)
    return dense, max(1, len(values))


def _value_ids(column: pa.ChunkedArray) -> Ids:
    """Assign numbers to the values of a column, null too."""
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.cast(column.type.storage_type)
    column = _bits(_decode(column))
    if pa.types.is_nested(column.type) or pa.types.is_interval(column.type):
        return _python_ids(column)
    try:
        encoded = pc.dictionary_encode(column, null_encoding="encode").combine_chunks()
    except pa.ArrowNotImplementedError:  # small decimals
        return _python_ids(column)
    chunks = encoded.chunks if isinstance(encoded, pa.ChunkedArray) else [encoded]
    numbers = [chunk.indices.to_numpy(zero_copy_only=False) for chunk in chunks]
    return np.concatenate([np.empty(0, dtype=np.int64), *numbers]).astype(np.int64)


def _bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return floats as their bits: a zero's sign, and a NaN, are values like others."""
    words = {pa.float16(): pa.int16(), pa.float32(): pa.int32(), pa.float64(): pa.int64()}
    if column.type not in words:
        return column
    word = words[column.type]
    return pa.chunked_array([chunk.view(word) for chunk in column.chunks], word)


def _python_ids(column: pa.ChunkedArray) -> Ids:
    numbers: dict[str, int] = {}
    values = (numbers.setdefault(repr(value), len(numbers)) for value in column.to_pylist())
    return np.fromiter(values, dtype=np.int64, count=len(column))
