"""What a user could write in an afternoon: the same join, chunk by chunk, on a store of others."""

from semistream.bench.engines.base import ByKey, Engine
from semistream.bench.engines.duck import DuckDb, DuckDbInMemory
from semistream.bench.engines.in_memory import ArrowInMemory, PolarsInMemory
from semistream.bench.engines.key_value import Lmdb, RocksDb
from semistream.bench.engines.sqlite import Sqlite

__all__ = ["ENGINES", "IN_MEMORY", "ByKey", "Engine"]

ENGINES: tuple[type[Engine], ...] = (DuckDb, Lmdb, RocksDb, Sqlite)
"""With the master on disk."""
IN_MEMORY: tuple[type[Engine], ...] = (ArrowInMemory, DuckDbInMemory, PolarsInMemory)
"""With all of it in memory: bounds, not rivals."""
