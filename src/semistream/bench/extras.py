"""What a benchmark needs beyond the package itself."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from semistream.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["spark_needed"]


@contextmanager
def spark_needed() -> Iterator[None]:
    """Say which extra brings a package that is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in {"pyspark", "pandas"}:
            raise
        msg = f"this benchmark needs {error.name}: pip install 'semistream[spark]'"
        raise OptionError(msg) from None
