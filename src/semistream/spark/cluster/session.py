"""One call for a Spark session in which enrichment works: Python, Java, addresses, quiet."""

from __future__ import annotations

import logging
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from semistream.master.database.address import SECRET
from semistream.master.place import without_secrets
from semistream.spark.cluster.java import prepare_java
from semistream.spark.cluster.maven import JarsError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["session"]

log = logging.getLogger(__name__)

QUIET = Path(__file__).with_name("log4j2.properties")
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
LOCAL = re.compile(r"local|spark://(127\.|localhost)")
_STREAMING = "org.apache.spark.sql.execution.streaming"
_MOVED = "" if pyspark.__version__.startswith("4.0.") else ".checkpointing"
_CHECKPOINTS = f"{_STREAMING}{_MOVED}.FileSystemBasedCheckpointFileManager"
DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Of a heap of some GB Spark takes 64 MB at a time for the rows that wait for Python's answers.
    "spark.buffer.pageSize": "2m",
}
ON_THIS_HOST = {
    # Where workers have this process's Python and modules for certain.
    "spark.python.daemon.module": "semistream.spark.lookup.daemon",
    # On a local disk Hadoop's other way starts some twenty processes in every micro-batch, to learn
    # of links and permissions: half of what a small micro-batch takes.
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
}

_SECRET = re.compile(rf"{SECRET.pattern}|credential|access.?key|[.]key\b|[.]sas\b", re.IGNORECASE)
_FOR_LAUNCH = ("spark.driver.", "spark.jars")  # of no use once the JVM runs


def session(
    app: str = "semistream",
    *,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    jars: Sequence[str | Path] = (),
) -> SparkSession:
    """Return the active Spark session, or start one that is set up for enrichment.

    Parameters
    ----------
    app
        The application's name.
    master
        ``local[2]``, ``spark://host:port``, ``sc://host:port`` (Spark Connect), …; without it
        what ``spark-submit``, ``SPARK_REMOTE`` or Spark's own files say, else ``local[*]``.
    config
        Spark settings; they go before the quiet defaults (no UI, no console progress, errors only).
    jars
        Jar files, beside those in ``spark.jars``.

    Returns
    -------
    SparkSession
        An active one is joined: what can be set is set, what cannot is reported in the log.

    Raises
    ------
    JavaNotFoundError
        There is no Java 17 or 21, and none was brought by set-up.
    JarsError
        Spark was to download jars, and could not.

    Examples
    --------
    ``spark = session("sales", master="local[2]", config={"spark.sql.shuffle.partitions": "2"})``
    """
    wanted = dict(config or {})
    if jars:
        wanted["spark.jars"] = ",".join(
            [*filter(None, [wanted.get("spark.jars")]), *map(str, jars)]
        )
    active = SparkSession.getActiveSession()
    if active is not None:
        _join(active, wanted)
        return active
    master = master or wanted.pop("spark.master", None) or _default_master(os.environ)
    if master.startswith("sc://") if master else "SPARK_REMOTE" in os.environ:
        return _connect(master, wanted)
    _prepare(master)
    defaults = DEFAULTS | (ON_THIS_HOST if (master or "").startswith("local") else {})
    settings = {**defaults, **_quiet(wanted), "spark.app.name": app}
    return _started(settings | ({"spark.master": master} if master else {}))


def _started(settings: Mapping[str, str]) -> SparkSession:
    secret = {name for name, value in settings.items() if _is_secret(name, value)}
    for name in sorted(secret):
        if name.startswith(_FOR_LAUNCH):
            secret.remove(name)
            log.warning(
                "the setting %s holds a secret, and all users of this machine can read it on the "
                "command line of Spark's JVM; leave the secret out (docs/pipeline.md says how)",
                name,
            )
    try:
        if secret:
            # PySpark puts all settings on the command line of the JVM that it starts; in one that
            # runs, it sets them through its own connection.
            public = [pair for pair in settings.items() if pair[0] not in secret]
            SparkContext._ensure_initialized(conf=SparkConf().setAll(public))  # noqa: SLF001
        return SparkSession.builder.config(map=dict(settings)).getOrCreate()
    except PySparkRuntimeError as error:
        packages = settings.get("spark.jars.packages")
        if packages is None or error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise JarsError(
            f"Spark did not start; it was to download {packages}, and says above what it missed."
            " Fetch the jars beforehand: semistream jars fetch, then the connectors' names."
        ) from error


def _is_secret(name: str, value: str) -> bool:
    """Return whether a setting looks as if others must not see it.

    Examples
    --------
    >>> _is_secret("spark.hadoop.fs.s3a.secret.key", "x"), _is_secret("spark.ui.enabled", "false")
    (True, False)
    """
    options = name.endswith("JavaOptions") and SECRET.search(value)
    return bool(_SECRET.search(name) or options) or without_secrets(value) != value


def _quiet(config: dict[str, str]) -> dict[str, str]:
    """Log errors only, from the JVM's first line, unless someone has chosen how Spark logs."""
    options = config.get(JAVA_OPTIONS, "")
    if "SPARK_CONF_DIR" in os.environ or "spark.log.level" in config or "log4j" in options:
        return config
    ours = f"-Dlog4j2.configurationFile={QUIET.as_uri()}"
    return {**config, JAVA_OPTIONS: f"{options} {ours}".strip()}


def _default_master(environment: Mapping[str, str]) -> str | None:
    """Return None, leaving the choice to Spark, where its settings may say; else ``local[*]``."""
    names = ("PYSPARK_GATEWAY_PORT", "SPARK_CONF_DIR", "SPARK_REMOTE")
    return None if any(name in environment for name in names) else "local[*]"


def _connect(master: str | None, config: Mapping[str, str]) -> SparkSession:
    address = master or os.environ["SPARK_REMOTE"]
    if address.startswith("local"):  # a server that this process starts
        _prepare(address)
    started = SparkSession.builder.remote(address).getOrCreate()
    _join(started, config)
    return started


def _prepare(master: str | None) -> None:
    """Set what Spark reads from the environment when its JVM starts."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(name, sys.executable)
    if master and LOCAL.match(master):
        # A host whose own name does not resolve, or resolves to a changing address, still works.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    prepare_java()


def _join(active: SparkSession, config: Mapping[str, str]) -> None:
    for name, value in config.items():
        if active.conf.get(name, None) == value:
            continue
        if active.conf.isModifiable(name):
            active.conf.set(name, value)
        else:
            # Without the value, which may be secret.
            log.warning("the active Spark session was started with another %s", name)
