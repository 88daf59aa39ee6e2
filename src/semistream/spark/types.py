"""The types that Spark has for Arrow's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema, to_arrow_type
from pyspark.sql.types import StructField

from semistream.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

__all__ = ["arrow_schema", "spark_field", "transferred"]

# Types that Spark lacks, and what holds all their values.
_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}


def arrow_schema(schema: StructType) -> pa.Schema:
    """Give the Arrow schema in which a DataFrame's rows reach Python."""
    return to_arrow_schema(schema)


def spark_field(field: pa.Field, name: str, nullable: bool) -> StructField:
    """Give the Spark column for a column of a master.

    Examples
    --------
    >>> spark_field(pa.field("units", pa.uint32()), "units", nullable=True)
    StructField('units', LongType(), True)
    """
    return StructField(name, _spark_type(field), nullable)


def transferred(field: pa.Field) -> pa.DataType:
    """Give the Arrow type in which a master's column goes to Spark.

    Examples
    --------
    >>> transferred(pa.field("code", pa.binary(8))), transferred(pa.field("n", pa.uint64()))
    (DataType(binary), Decimal128Type(decimal128(20, 0)))
    """
    return to_arrow_type(_spark_type(field))


def _spark_type(field: pa.Field) -> DataType:
    try:
        return from_arrow_type(_WIDER.get(field.type, field.type), prefer_timestamp_ntz=True)
    except PySparkTypeError:
        msg = (
            f"Spark has no type for the master's column {field.name!r} ({field.type}); leave it "
            "out with select=[…], or build the master with another type"
        )
        raise SchemaError(msg) from None
