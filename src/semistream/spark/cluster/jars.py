"""The connector jars that a pipeline needs for the installed Spark, and where they come from."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from semistream.errors import OptionError
from semistream.spark.cluster.maven import (
    CENTRAL,
    Artifact,
    JarsError,
    download,
    exists,
    is_right,
    trusted_repository,
)
from semistream.system.user_cache import user_cache

if TYPE_CHECKING:
    from collections.abc import Iterable

    from semistream.spark.cluster.maven import Progress

__all__ = ["KINDS", "artifacts", "fetch", "folder_for", "missing", "resolve", "spark_version"]

KINDS = ("delta", "iceberg", "kafka", "postgresql")
SCALA = "_2.13"
SPARK = "org.apache.spark"
TOKENS = f"spark-token-provider-kafka-0-10{SCALA}"
POSTGRESQL = "42.7.14"
# By Spark's line: what was released for it, and runs with it.
CLIENTS = {"4.0": "3.9.1", "4.1": "3.9.1", "4.2": "3.9.2"}
POOL = {"4.0": "2.12.0", "4.1": "2.12.1", "4.2": "2.13.1"}
DELTA = {"4.0": "4.4.0", "4.1": "4.4.0", "4.2": "4.4.0"}
ICEBERG = {"4.0": "1.11.0", "4.1": "1.12.0"}
# Maven Central lacks this one part of the Kafka connector for most releases; it hardly changes.
TOKENS_INSTEAD = {"4.0": "4.0.0", "4.1": "4.1.0-preview1", "4.2": "4.1.0-preview1"}
EXTENSIONS = {
    "delta": "io.delta.sql.DeltaSparkSessionExtension",
    "iceberg": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}
DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


def spark_version() -> str:
    """Return the version of the installed pyspark, without importing it."""
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError as error:
        raise JarsError("pyspark is not installed; pip install 'semistream[spark]'.") from error


def artifacts(kind: str, spark: str | None = None) -> tuple[Artifact, ...]:
    """Return the jars of a connector, for a Spark version.

    Examples
    --------
    >>> [jar.file for jar in artifacts("delta", "4.1.3")]
    ['delta-spark_4.1_2.13-4.4.0.jar', 'delta-storage-4.4.0.jar']
    """
    spark = spark or spark_version()
    line = ".".join(spark.split(".")[:2])
    match kind:
        case "kafka":
            return (
                Artifact(SPARK, f"spark-sql-kafka-0-10{SCALA}", spark),
                Artifact(SPARK, TOKENS, spark),
                Artifact("org.apache.kafka", "kafka-clients", _fitting(kind, CLIENTS, line)),
                Artifact("org.apache.commons", "commons-pool2", _fitting(kind, POOL, line)),
            )
        case "delta":
            version = _fitting(kind, DELTA, line)
            names = (f"delta-spark_{line}{SCALA}", "delta-storage")
            return tuple(Artifact("io.delta", name, version) for name in names)
        case "iceberg":
            version = _fitting(kind, ICEBERG, line)
            return (
                Artifact("org.apache.iceberg", f"iceberg-spark-runtime-{line}{SCALA}", version),
            )
        case "postgresql":
            return (Artifact("org.postgresql", "postgresql", POSTGRESQL),)
    raise OptionError.unknown("connector", kind, KINDS)


def _fitting(kind: str, versions: dict[str, str], line: str) -> str:
    if line not in versions:
        known = ", ".join(versions)
        raise OptionError(
            f"no jars of {kind} are known for Spark {line}, only for {known}; "
            "install such a pyspark, or give jars of your own in the setting spark.jars."
        )
    return versions[line]


def folder_for(spark: str | None = None) -> Path:
    """Return the folder of fetched jars: ``SEMISTREAM_JARS``, or one in the user's cache."""
    chosen = os.environ.get("SEMISTREAM_JARS")
    default = user_cache() / "jars" / (spark or spark_version())
    return Path(chosen).expanduser() if chosen else default


def _instead(artifact: Artifact) -> Artifact:
    """Return the nearest release of the part that Maven Central lacks; others as they are."""
    if artifact.name != TOKENS:
        return artifact
    line = ".".join(artifact.version.split(".")[:2])
    return Artifact(artifact.group, artifact.name, TOKENS_INSTEAD.get(line, artifact.version))


def _present(artifact: Artifact, folder: Path) -> Path | None:
    files = (folder / artifact.file, folder / _instead(artifact).file)
    return next((file for file in files if file.exists()), None)


def _needed(kinds: Iterable[str]) -> list[Artifact]:
    return [artifact for kind in kinds for artifact in artifacts(kind)]


def missing(kinds: Iterable[str], folder: Path | None = None) -> list[Artifact]:
    """List the jars of these connectors that the folder does not have."""
    folder = folder or folder_for()
    return [artifact for artifact in _needed(kinds) if _present(artifact, folder) is None]


def fetch(
    kinds: Iterable[str], folder: Path | None = None, progress: Progress | None = None
) -> list[Path]:
    """Download the jars of these connectors into a folder, from Maven Central or its mirror.

    Raises
    ------
    JarsError
        One of them cannot be had.
    """
    folder = folder or folder_for()
    files = []
    for artifact in _needed(kinds):
        file = _present(artifact, folder)
        if file is None or not is_right(file):
            absent = artifact.name == TOKENS and exists(artifact) is False
            file = download(_instead(artifact) if absent else artifact, folder, progress)
        files.append(file)
    return files


def resolve(kinds: Iterable[str], folder: str | Path | None = None) -> dict[str, str]:
    """Return the Spark settings with which these connectors work.

    From the folder that ``semistream jars fetch`` filled, if it is complete; otherwise Spark
    itself downloads them as it starts (``spark.jars.packages``).

    Examples
    --------
    >>> resolve([])
    {}
    >>> resolve(["delta"])["spark.sql.extensions"]
    'io.delta.sql.DeltaSparkSessionExtension'
    """
    kinds = sorted(set(kinds))
    if not kinds:
        return {}
    place = Path(folder) if folder else folder_for()
    jars = _packages(kinds, place) if missing(kinds, place) else _files(kinds, place)
    if extensions := [EXTENSIONS[kind] for kind in kinds if kind in EXTENSIONS]:
        jars["spark.sql.extensions"] = ",".join(extensions)
    if "delta" in kinds:
        jars["spark.sql.catalog.spark_catalog"] = DELTA_CATALOG
    return jars


def _files(kinds: list[str], folder: Path) -> dict[str, str]:
    files = [file for artifact in _needed(kinds) if (file := _present(artifact, folder))]
    if wrong := [str(file) for file in files if not is_right(file)]:
        raise JarsError(
            f"{', '.join(wrong)}: other bytes than the release has, or in a folder that others can "
            "write to; remove them and run: semistream jars fetch."
        )
    return {"spark.jars": ",".join(map(str, files))}


def _packages(kinds: list[str], folder: Path) -> dict[str, str]:
    """Ask Spark for the first jar of each connector; it finds what that one depends on."""
    settings = {"spark.jars.packages": ",".join(artifacts(kind)[0].coordinate for kind in kinds)}
    if (mirror := trusted_repository()) != CENTRAL:
        settings["spark.jars.repositories"] = mirror
    if "kafka" in kinds:
        tokens = artifacts("kafka")[1]
        if exists(tokens) is False:
            # Asking for another version beside it is no way out: Ivy insists on the newer one. And
            # Spark would take a jar from an address as it comes.
            settings["spark.jars.excludes"] = f"{tokens.group}:{tokens.name}"
            settings["spark.jars"] = str(download(_instead(tokens), folder))
    return settings
