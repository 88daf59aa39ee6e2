"""Sources of pipelines, each as a streaming DataFrame.

The settings of a source are in `semistream.pipeline.file.ends`.
"""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, StringType, StructField, StructType

from semistream.names import unused
from semistream.pipeline.file import ends
from semistream.pipeline.file.errors import PipelineError, Problem
from semistream.pipeline.io.generator import Generator

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

    from semistream.pipeline import Pipeline

__all__ = ["load"]


class _WrongError(Exception):
    """A setting of the source is wrong."""

    def __init__(self, setting: str, message: str) -> None:
        super().__init__(message)
        self.setting = setting


def load(pipeline: Pipeline, spark: SparkSession) -> DataFrame:
    """Open a pipeline's source; nothing is read yet.

    Raises
    ------
    PipelineError
        The source is not there, or its schema is not one; with the line.
    """
    try:
        return _load(pipeline.source, spark)
    except _WrongError as wrong:
        where = f"source.{wrong.setting}"
        problem = Problem(pipeline.mark(where), f"{where}: {wrong}")
    except AnalysisException as error:
        problem = Problem(pipeline.mark("source"), f"source: {_first_line(error)}")
    raise PipelineError(str(pipeline.path), [problem])


def _first_line(error: PySparkException) -> str:
    return str(error).strip().split("\n", 1)[0]


def _parsed(ddl: str) -> StructType:
    try:
        parsed = DataType.fromDDL(ddl)
    except PySparkException as error:
        raise _WrongError("schema", _first_line(error)) from None
    if not isinstance(parsed, StructType):
        raise _WrongError("schema", f"{ddl!r} names no columns; write as: id long, name string")
    return parsed


@singledispatch
def _load(source: object, spark: SparkSession) -> DataFrame:
    raise NotImplementedError(source, spark)


@_load.register(ends.FilesSource)
def _(source: ends.FilesSource, spark: SparkSession) -> DataFrame:
    schema = _parsed(source.schema) if source.schema else _schema_of_files(source, spark)
    reader = spark.readStream.format(source.format).schema(schema)
    if source.files_per_batch:
        reader = reader.option("maxFilesPerTrigger", source.files_per_batch)
    try:
        return _with_options(reader, source).load(source.path)
    except AnalysisException as error:
        raise _WrongError("path", _first_line(error)) from None


def _schema_of_files(source: ends.FilesSource, spark: SparkSession) -> StructType:
    try:
        return spark.read.parquet(source.path).schema
    except AnalysisException as error:
        way_out = "put a file there, or give the columns, as schema: {id: long, name: string}"
        raise _WrongError("path", f"{_first_line(error)} – {way_out}") from None


def _with_options(
    reader: DataStreamReader, source: ends.FilesSource | ends.KafkaSource
) -> DataStreamReader:
    return reader.options(**{name: str(value) for name, value in source.options.items()})


@_load.register(ends.KafkaSource)
def _(source: ends.KafkaSource, spark: SparkSession) -> DataFrame:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", source.servers)
    reader = reader.option("subscribe", source.topic)
    reader = reader.option("startingOffsets", source.starting_offsets)
    if source.rows_per_batch:
        reader = reader.option("maxOffsetsPerTrigger", source.rows_per_batch)
    records = _with_options(reader, source).load()
    metadata = [sf.col(name).alias(f"kafka_{name}") for name in source.metadata or ()]
    if source.schema is None:
        return records.select("value", *metadata)
    return _from_json(records, source, _parsed(source.schema), metadata)


def _from_json(
    records: DataFrame, source: ends.KafkaSource, schema: StructType, metadata: list[Column]
) -> DataFrame:
    corrupt = unused("__corrupt", schema.names)
    fields = [StructField(corrupt, StringType())] if source.malformed == "drop" else []
    read = StructType([*schema.fields, *fields])
    options = {
        "mode": "FAILFAST" if source.malformed == "fail" else "PERMISSIVE",
        "columnNameOfCorruptRecord": corrupt,
    }
    value = sf.from_json(sf.col("value").cast("string"), read, options)
    parsed = records.select(value.alias("value"), *metadata)
    if source.malformed == "drop":
        parsed = parsed.where(sf.col(f"value.{corrupt}").isNull())
    columns = [sf.col("value").getField(name).alias(name) for name in schema.names]
    kept = [sf.col(f"kafka_{name}") for name in source.metadata or ()]
    return parsed.select(*columns, *kept)


@_load.register(ends.GeneratorSource)
def _(source: ends.GeneratorSource, spark: SparkSession) -> DataFrame:
    spark.dataSource.register(Generator)
    partitions = int(spark.sparkContext.defaultParallelism)  # as many tasks as run at once
    reader = spark.readStream.format(Generator.name())
    return reader.options(**Generator.options_of(source, partitions)).load()


@_load.register(ends.RateSource)
def _(source: ends.RateSource, spark: SparkSession) -> DataFrame:
    reader = spark.readStream.format("rate").option("rowsPerSecond", source.rows_per_second)
    if source.partitions:
        reader = reader.option("numPartitions", source.partitions)
    return reader.load()
