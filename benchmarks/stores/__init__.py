"""What a user could write in an afternoon: the same join, chunk by chunk, on a store of others."""

from benchmarks.stores.base import ByKey, Engine
from benchmarks.stores.duck import DuckDb, DuckDbInMemory
from benchmarks.stores.in_memory import ArrowInMemory, PolarsInMemory
from benchmarks.stores.key_value import Lmdb, RocksDb
from benchmarks.stores.sqlite import Sqlite

__all__ = ["ENGINES", "IN_MEMORY", "ByKey", "Engine"]

ENGINES: tuple[type[Engine], ...] = (DuckDb, Lmdb, RocksDb, Sqlite)
"""With the master on disk."""
IN_MEMORY: tuple[type[Engine], ...] = (ArrowInMemory, DuckDbInMemory, PolarsInMemory)
"""With all of it in memory: bounds, not rivals."""
