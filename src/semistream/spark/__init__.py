"""The join on Spark; `session` starts a Spark session in which it works."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semistream.spark.cluster.session import session
else:
    from semistream.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(__name__, {"session": "semistream.spark.cluster.session"})

__all__ = ["session"]
