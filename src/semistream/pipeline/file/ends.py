"""Where rows come from, and where they go."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from semistream.master.database.address import SECRET
from semistream.pipeline.file import values
from semistream.pipeline.file.problems import Mistakes
from semistream.pipeline.file.sections import Section, setting
from semistream.workloads import Stream, Zipf

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from semistream.pipeline.file.node import Node, Scalar

__all__ = [
    "SINKS",
    "SOURCES",
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


def _no_password(node: Node) -> str:
    url = values.text(node)
    if _LOGIN.search(url) or any(map(SECRET.search, _OPTION.findall(url))):
        raise Mistakes.at(
            node.mark, f"{node.where} holds a password; give it as password: ${{PGPASSWORD}}"
        )
    return url


@dataclass(frozen=True, kw_only=True)
class FilesSource(Section):
    """A folder into which files are put."""

    kind = "files"
    path: str = setting(values.text, path=True)
    format: str = setting(values.choice(("parquet", "json", "csv")), "parquet")
    schema: str | None = setting(values.schema, None)
    files_per_batch: int | None = setting(values.count(), None)
    options: Mapping[str, Scalar] = setting(values.mapping(values.scalar), {})

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """Tell what is missing or of no use beside other settings."""
        if self.schema is None and self.format != "parquet":
            yield "format", f"{self.format!r} needs a schema, as schema: {{id: long, name: string}}"


@dataclass(frozen=True, kw_only=True)
class KafkaSource(Section):
    """A topic of Kafka's, its values JSON objects or raw bytes."""

    kind = "kafka"
    servers: str = setting(values.text)
    topic: str = setting(values.text)
    format: str = setting(values.choice(("json", "raw")), "json")
    schema: str | None = setting(values.schema, None)
    starting_offsets: str = setting(values.text, "earliest")
    rows_per_batch: int | None = setting(values.count(), None)
    metadata: tuple[str, ...] | None = setting(values.names(values.choice(_METADATA)), None)
    malformed: str = setting(values.choice(("fail", "drop", "null")), "fail")
    options: Mapping[str, Scalar] = setting(values.mapping(values.scalar), {})

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """Tell what is missing or of no use beside other settings."""
        if self.format == "json" and self.schema is None:
            yield "schema", "is missing: JSON needs it, as schema: {id: long, name: string}"
        if self.format == "raw" and self.schema is not None:
            yield "schema", "is for format: json; raw values are one column, value"
        offsets = self.starting_offsets
        if offsets not in {"earliest", "latest"} and not offsets.startswith("{"):
            yield (
                "starting_offsets",
                f"{offsets!r} is not known; choose earliest, latest, or Kafka's JSON of offsets",
            )


@dataclass(frozen=True, kw_only=True)
class GeneratorSource(Section):
    """The built-in sales, whose keys follow Zipf's law."""

    kind = "generator"
    keys: int = setting(values.count())
    rows: int | None = setting(values.count(), None)
    rows_per_batch: int = setting(values.count(), 100_000)
    skew: float = setting(values.number(0, 10), 1.0)
    seed: int = setting(values.count(0), 0)
    row_bytes: int = setting(values.count(), 20)
    absent: float = setting(values.number(0, 1), 0.0)
    stride: int = setting(values.count(), 1)
    strings: bool = setting(values.flag, False)

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
class RateSource(Section):
    """Spark's own test source: columns timestamp and value."""

    kind = "rate"
    rows_per_second: int = setting(values.count(), 1000)
    partitions: int | None = setting(values.count(), None)


@dataclass(frozen=True, kw_only=True)
class _TableSink(Section):
    path: str = setting(values.text, path=True)
    partition_by: tuple[str, ...] = setting(values.names(), ())
    options: Mapping[str, Scalar] = setting(values.mapping(values.scalar), {})


class ParquetSink(_TableSink):
    """A folder of Parquet files."""

    kind = "parquet"


class DeltaSink(_TableSink):
    """A Delta table."""

    kind = "delta"


@dataclass(frozen=True, kw_only=True)
class KafkaSink(Section):
    """A topic of Kafka's: a JSON object a row."""

    kind = "kafka"
    servers: str = setting(values.text)
    topic: str = setting(values.text)
    key: str | None = setting(values.text, None)
    options: Mapping[str, Scalar] = setting(values.mapping(values.scalar), {})


@dataclass(frozen=True, kw_only=True)
class PostgresqlSink(Section):
    """A table of PostgreSQL's."""

    kind = "postgresql"
    url: str = setting(_no_password)
    table: str = setting(values.text)
    user: str | None = setting(values.text, None)
    password: str | None = field(
        default=None, repr=False, metadata={"read": values.text, "path": False}
    )
    ledger: str = setting(values.text, "semistream_ledger")
    options: Mapping[str, Scalar] = setting(values.mapping(values.scalar), {})

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """Tell what is missing or of no use beside other settings."""
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
class ConsoleSink(Section):
    """Some rows of each batch, printed."""

    kind = "console"
    rows: int = setting(values.count(), 20)
    truncate: bool = setting(values.flag, True)


class NoopSink(Section):
    """Nowhere: for measuring."""

    kind = "noop"


Source = FilesSource | KafkaSource | GeneratorSource | RateSource
Sink = ParquetSink | DeltaSink | KafkaSink | PostgresqlSink | ConsoleSink | NoopSink
SOURCES = {kind.kind: kind for kind in (FilesSource, KafkaSource, GeneratorSource, RateSource)}
SINKS = {
    kind.kind: kind
    for kind in (ParquetSink, DeltaSink, KafkaSink, PostgresqlSink, ConsoleSink, NoopSink)
}
