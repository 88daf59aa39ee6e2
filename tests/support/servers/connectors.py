"""The connector jars, for the session that the tests share and for drivers of their own."""

from __future__ import annotations

import os
from functools import cache

from semistream.spark.cluster import jars
from semistream.spark.cluster.maven import JarsError
from support import CACHE, downloads

KINDS = ("delta", "kafka", "postgresql")
FOLDER = CACHE / "jars" / jars.spark_version()


@cache
def config() -> dict[str, str]:
    """Settings with the jars of Kafka, Delta and PostgreSQL; none where they cannot be had."""
    try:
        jars.fetch(KINDS, FOLDER)
    except JarsError:
        if os.environ.get("CI") == "true":
            raise
        return {}
    return jars.resolve(KINDS, FOLDER)


def require(*kinds: str) -> dict[str, str]:
    """Give the settings of these connectors, or skip the test and say what is missing."""
    with downloads():
        jars.fetch(kinds, FOLDER)
    return jars.resolve(kinds, FOLDER)
