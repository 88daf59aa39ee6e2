"""Spark's types for Arrow's, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException, PySparkTypeError
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import StringType, StructField, StructType

from semistream.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.types import DataType

__all__ = ["arrow_schema", "check_collations", "quote", "spark_field", "transfer_type", "type_name"]

# Types that Spark lacks → the smallest that holds all their values.
_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow types of a DataFrame's columns, the same in every session.

    A timestamp is an instant, in microseconds, UTC, whatever the session's time zone is; one
    without a time zone (``timestamp_ntz``) has none here.

    Examples
    --------
    >>> from pyspark.sql.types import TimestampType
    >>> arrow_schema(StructType([StructField("at", TimestampType())])).field("at").type
    TimestampType(timestamp[us, tz=UTC])
    """
    return pa.schema([_arrow_field(field) for field in schema])


def _arrow_field(field: StructField) -> pa.Field:
    try:
        kind = to_arrow_type(field.dataType, error_on_duplicated_field_names_in_struct=True)
    except (PySparkException, pa.ArrowException, ValueError) as error:
        msg = (
            f"column {field.name!r} of type {field.dataType.simpleString()} has no counterpart in "
            "Arrow; cast it, for example to string, or drop it"
        )
        raise SchemaError(msg) from error
    return pa.field(field.name, kind, field.nullable)


def check_collations(schema: StructType, keys: Iterable[str]) -> None:
    """Raise for key columns whose texts Spark does not compare byte by byte, as joins do here.

    Examples
    --------
    >>> check_collations(StructType([StructField("sku", StringType("UTF8_LCASE"))]), ["sku"])
    Traceback (most recent call last):
    semistream.errors.SchemaError: the key column 'sku' has the collation UTF8_LCASE, by which texts
    that differ may be equal; ...
    """
    for name in keys:
        kind = schema[name].dataType
        if isinstance(kind, StringType) and not kind.isUTF8BinaryCollation():
            msg = (
                f"the key column {name!r} has the collation {kind.collation}, by which texts that "
                "differ may be equal; here keys are equal if their bytes are. Make it plain text "
                f"first: .withColumn({name!r}, F.collate({name!r}, 'UTF8_BINARY')), and if case "
                "is not to matter, F.lower(…) in the stream and in the master"
            )
            raise SchemaError(msg)


def spark_field(field: pa.Field, name: str, nullable: bool) -> StructField:
    """Return the Spark column for a column of a master.

    Examples
    --------
    >>> spark_field(pa.field("units", pa.uint32()), "units", nullable=True)
    StructField('units', LongType(), True)
    """
    return StructField(name, _spark_type(field), nullable)


def transfer_type(field: pa.Field) -> pa.DataType:
    """Return the Arrow type in which a master's column goes to Spark.

    Examples
    --------
    >>> transfer_type(pa.field("code", pa.binary(8))), transfer_type(pa.field("n", pa.uint64()))
    (DataType(binary), Decimal128Type(decimal128(20, 0)))
    """
    return to_arrow_type(_spark_type(field))


def type_name(kind: pa.DataType) -> str:
    """Return Spark's name of a type, for messages; Arrow's where Spark has no such type.

    Examples
    --------
    >>> type_name(pa.int64()), type_name(pa.duration("s"))
    ('bigint', 'interval day to second')
    """
    try:
        return _spark_type(pa.field("", kind)).simpleString()
    except SchemaError:
        return str(kind)


def _spark_type(field: pa.Field) -> DataType:
    try:
        return from_arrow_type(_WIDER.get(field.type, field.type), prefer_timestamp_ntz=True)
    except PySparkTypeError:
        msg = (
            f"Spark has no type for the master's column {field.name!r}, Arrow's {field.type}; "
            "leave it out with select=[…], or build the master with another type"
        )
        raise SchemaError(msg) from None


def quote(name: str) -> str:
    """Return a column's name as an expression, whatever is in it.

    Examples
    --------
    >>> print(quote("a.b`c"))
    `a.b``c`
    """
    return "`{}`".format(name.replace("`", "``"))
