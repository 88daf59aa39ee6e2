"""What a user could write in an afternoon: the same join, chunk by chunk, on a store of others."""

from benchmarks.stores.base import ByKey, Engine, built
from benchmarks.stores.key_value import Lmdb, RocksDb, RocksDbAsync
from benchmarks.stores.tables import (
    ArrowInMemory,
    DuckDb,
    DuckDbInMemory,
    PolarsInMemory,
    Sqlite,
)

__all__ = ["ENGINES", "ByKey", "DuckDb", "Engine", "RocksDbAsync", "built"]

_ON_DISK: tuple[type[Engine], ...] = (DuckDb, Lmdb, RocksDb, Sqlite)
# Bounds, not rivals.
_IN_MEMORY: tuple[type[Engine], ...] = (ArrowInMemory, DuckDbInMemory, PolarsInMemory)
ENGINES = {kind.name: kind for kind in (*_ON_DISK, *_IN_MEMORY)}
