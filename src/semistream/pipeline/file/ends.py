"""Where rows come from, and where they go."""

import re
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from semistream import values
from semistream.errors import OptionError
from semistream.master.database.address import SECRET
from semistream.pipeline.file.section import PATH, Conflicts, Options, Section
from semistream.values import IllegalValueError, Kind
from semistream.workloads import Stream, Zipf

__all__ = [
    "ConsoleSink",
    "DeltaSink",
    "FilesSource",
    "GeneratorSource",
    "KafkaSink",
    "KafkaSource",
    "NoopSink",
    "ParquetSink",
    "PostgresqlSink",
    "RateSource",
    "Sink",
    "Source",
]


_METADATA = ("key", "topic", "partition", "offset", "timestamp")
_LOGIN = re.compile(r"//[^/@]*:[^/@]*@")
_OPTION = re.compile(r"[?&;]([^=&;]*)=")
_TYPES = {
    *("boolean", "byte", "tinyint", "short", "smallint", "int", "integer", "long", "bigint"),
    *("float", "real", "double", "decimal", "dec", "numeric", "string", "char", "varchar"),
    *("binary", "date", "timestamp", "timestamp_ntz", "timestamp_ltz", "array", "map", "struct"),
}


def _read_schema(value: object) -> str:
    """Read ``id long, name string``, or a mapping from names to types."""
    if not isinstance(value, dict):
        return values.read_text(value)
    columns = values.mapping(Kind(_read_type, values.TEXT.schema)).read(value)
    if not columns:
        raise IllegalValueError.of("is empty; give column: type")
    return ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in columns.items())


def _read_type(value: object) -> str:
    kind = values.read_text(value)
    word = re.sub(r"[^a-z_].*", "", kind.strip().lower(), flags=re.DOTALL)
    if word not in _TYPES:
        message = (
            "{shown} is not a type of Spark's; types are long, int, double, string, boolean, "
            "date, timestamp, decimal(10,2), binary, array<…>, struct<…>."
        )
        raise IllegalValueError.of(message + values.nearest(word, _TYPES))
    return kind


def _read_url(value: object) -> str:
    url = values.read_text(value)
    if _LOGIN.search(url) or any(map(SECRET.search, _OPTION.findall(url))):
        raise IllegalValueError.of("holds a password; give it as password: ${PGPASSWORD}")
    return url


ColumnTypes = Annotated[
    str | None, Kind(_read_schema, lambda: {"type": ["string", "object"], "minLength": 1})
]


@dataclass(frozen=True, kw_only=True)
class _End(Section):
    identity: ClassVar[tuple[str, ...]]
    """The fields that must stay the same for a checkpoint to be resumed."""


@dataclass(frozen=True, kw_only=True)
class FilesSource(_End):
    """A folder into which files are put."""

    identity: ClassVar[tuple[str, ...]] = ("path", "format")
    kind: Literal["files"] = "files"
    path: Annotated[str, PATH]
    """The folder."""
    format: Annotated[str, values.choice(("parquet", "json", "csv"))] = "parquet"
    """The format of the files."""
    schema: ColumnTypes = None
    """Columns and types; required for json and csv, and where no Parquet file is there yet."""
    files_per_batch: Annotated[int | None, values.count()] = None
    """At most so many files a batch; all that are there if not given."""
    options: Options = field(default_factory=dict)
    """Options of Spark's reader."""

    def conflicts(self) -> Conflicts:
        """Yield settings that are missing or of no use beside others."""
        if self.schema is None and self.format != "parquet":
            yield "format", f"{self.format!r} needs a schema, as schema: {{id: long, name: string}}"


@dataclass(frozen=True, kw_only=True)
class KafkaSource(_End):
    """A topic of Kafka's, its values JSON objects or raw bytes."""

    identity: ClassVar[tuple[str, ...]] = ("topic",)
    kind: Literal["kafka"] = "kafka"
    servers: Annotated[str, values.TEXT]
    """The brokers, as host:9092."""
    topic: Annotated[str, values.TEXT]
    """The topic."""
    format: Annotated[str, values.choice(("json", "raw"))] = "json"
    """json, which needs a schema, or raw: a column value of bytes."""
    schema: ColumnTypes = None
    """Columns and types of the JSON objects."""
    starting_offsets: Annotated[str, values.TEXT] = "earliest"
    """earliest, latest, or Kafka's JSON of offsets."""
    rows_per_batch: Annotated[int | None, values.count()] = None
    """At most so many records a batch; no limit if not given."""
    metadata: Annotated[tuple[str, ...] | None, values.names(values.choice(_METADATA))] = None
    """What of a record comes as columns kafka_…; its origin where the sink is Kafka, too."""
    malformed: Annotated[str, values.choice(("fail", "drop", "null"))] = "fail"
    """What a value that is not of the schema does."""
    options: Options = field(default_factory=dict)
    """Options of Spark's reader, as kafka.security.protocol."""

    def conflicts(self) -> Conflicts:
        """Yield settings that are missing or of no use beside others."""
        if self.format == "json" and self.schema is None:
            yield "schema", "is missing: JSON needs it, as schema: {id: long, name: string}"
        if self.format == "raw" and self.schema is not None:
            yield "schema", "is for format: json; raw values are one column, value"
        offsets = self.starting_offsets
        if offsets not in {"earliest", "latest"} and not offsets.startswith("{"):
            yield (
                "starting_offsets",
                "{shown} is not known; choose earliest, latest, or Kafka's JSON of offsets",
            )


@dataclass(frozen=True, kw_only=True)
class GeneratorSource(_End):
    """Built-in sales, whose keys follow Zipf's law."""

    identity: ClassVar[tuple[str, ...]] = (
        "keys",
        "skew",
        "seed",
        "row_bytes",
        "absent",
        "stride",
        "strings",
    )
    kind: Literal["generator"] = "generator"
    keys: Annotated[int, values.count()]
    """How many keys there are."""
    rows: Annotated[int | None, values.count()] = None
    """How many rows in all; no end if not given."""
    rows_per_batch: Annotated[int, values.count()] = 100_000
    """How many rows a batch has."""
    skew: Annotated[float, values.number(0, 10)] = 1.0
    """The exponent of Zipf's law; 0 is uniform."""
    seed: Annotated[int, values.count(0)] = 0
    """The same seed gives the same rows."""
    row_bytes: Annotated[int, values.count()] = 20
    """The width of a row."""
    absent: Annotated[float, values.number(0, 1)] = 0.0
    """The fraction of rows without a match."""
    stride: Annotated[int, values.count()] = 1
    """The step between keys."""
    strings: Annotated[bool, values.FLAG] = False
    """Whether keys are strings."""

    def conflicts(self) -> Conflicts:
        """Yield what the workload itself says against its arguments."""
        try:
            _ = self.stream
        except OptionError as error:
            yield (), f": {error}"

    @property
    def stream(self) -> Stream:
        """The workload."""
        return Stream(
            Zipf(self.keys, self.skew),
            seed=self.seed,
            row_bytes=self.row_bytes,
            absent=self.absent,
            stride=self.stride,
            strings=self.strings,
        )


@dataclass(frozen=True, kw_only=True)
class RateSource(_End):
    """Spark's own test source: columns timestamp and value."""

    identity: ClassVar[tuple[str, ...]] = ("rows_per_second",)
    kind: Literal["rate"] = "rate"
    rows_per_second: Annotated[int, values.count()] = 1000
    """How many rows a second."""
    partitions: Annotated[int | None, values.count()] = None
    """How many partitions a batch has; Spark's default if not given."""


# Docstrings of fields are not inherited; these are.
_PARTITIONS = "Columns by whose values files are put into folders."
_WRITER = "Options of Spark's writer."


@dataclass(frozen=True, kw_only=True)
class _TableSink(_End):
    identity: ClassVar[tuple[str, ...]] = ("path",)
    path: Annotated[str, PATH, Field(description="The folder.")]
    partition_by: Annotated[tuple[str, ...], values.names(), Field(description=_PARTITIONS)] = ()
    options: Annotated[Options, Field(description=_WRITER)] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ParquetSink(_TableSink):
    """A folder of Parquet files."""

    kind: Literal["parquet"] = "parquet"


@dataclass(frozen=True, kw_only=True)
class DeltaSink(_TableSink):
    """A Delta table."""

    kind: Literal["delta"] = "delta"


@dataclass(frozen=True, kw_only=True)
class KafkaSink(_End):
    """A topic of Kafka's: a JSON object a row."""

    identity: ClassVar[tuple[str, ...]] = ("topic",)
    kind: Literal["kafka"] = "kafka"
    servers: Annotated[str, values.TEXT]
    """The brokers, as host:9092."""
    topic: Annotated[str, values.TEXT]
    """The topic."""
    key: Annotated[str | None, values.TEXT] = None
    """The column that is the records' key; none if not given."""
    options: Options = field(default_factory=dict)
    """Options of Spark's writer, as kafka.security.protocol."""


@dataclass(frozen=True, kw_only=True)
class PostgresqlSink(_End):
    """A table of PostgreSQL's."""

    identity: ClassVar[tuple[str, ...]] = ("url", "table")
    kind: Literal["postgresql"] = "postgresql"
    url: Annotated[str, Kind(_read_url, values.TEXT.schema)]
    """The database, as postgresql://host:5432/database."""
    table: Annotated[str, values.TEXT]
    """The table, made if it is not there."""
    user: Annotated[str | None, values.TEXT] = None
    """The user."""
    password: Annotated[str | None, values.TEXT] = field(default=None, repr=False)
    """The user's password, as ${PGPASSWORD}."""
    ledger: Annotated[str, values.TEXT] = "semistream_ledger"
    """The table that has the numbers of the batches that are written."""
    options: Options = field(default_factory=dict)
    """Options of JDBC."""

    def conflicts(self) -> Conflicts:
        """Yield settings that are missing or of no use beside others."""
        if not self.url.removeprefix("jdbc:").startswith("postgresql://"):
            yield "url", "must be as postgresql://host:5432/database"
        for name, value in self.options.items():
            if name.lower() == "isolationlevel" and str(value).upper() == "NONE":
                yield (
                    "options",
                    f"{name}: {value} would commit a part of a task's rows, and a task that is "
                    "tried again repeat or lose some; leave it out, or choose one of: "
                    "READ_UNCOMMITTED, READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE",
                )


@dataclass(frozen=True, kw_only=True)
class ConsoleSink(_End):
    """Some rows of each batch, printed."""

    identity: ClassVar[tuple[str, ...]] = ()
    kind: Literal["console"] = "console"
    rows: Annotated[int, values.count()] = 20
    """How many rows of a batch."""
    truncate: Annotated[bool, values.FLAG] = True
    """Whether long values are cut."""


@dataclass(frozen=True, kw_only=True)
class NoopSink(_End):
    """Nowhere: for measuring."""

    identity: ClassVar[tuple[str, ...]] = ()
    kind: Literal["noop"] = "noop"


Source = Annotated[
    FilesSource | KafkaSource | GeneratorSource | RateSource, Field(discriminator="kind")
]
Sink = Annotated[
    ParquetSink | DeltaSink | KafkaSink | PostgresqlSink | ConsoleSink | NoopSink,
    Field(discriminator="kind"),
]
