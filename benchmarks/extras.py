"""What a benchmark needs beyond the package itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semistream.cli.terminal import needed

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__all__ = ["spark_needed"]

_EXTRAS = {"pyspark": "spark", "pandas": "spark", "psycopg": "postgresql", "pymysql": "mysql"}


def spark_needed() -> AbstractContextManager[None]:
    """Say which extra brings a package that a benchmark on Spark misses."""
    return needed("this benchmark", **_EXTRAS)
