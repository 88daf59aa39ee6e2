"""Cases of the conformance suite whose masters are tables of a database."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import semistream as ss
from semistream.testing import Case
from semistream.testing.data import pick, stream_of, text, with_nulls

if TYPE_CHECKING:
    from pathlib import Path

    from semistream.master import Master
    from support.servers.databases import Server

KEYS = 600
ROWS = 900
_TIGHT = {"duplicates", "giant_string", "string_and_date"}  # with many small requests


@dataclass(frozen=True, eq=False)
class LiveCase(Case):
    """A case whose master is in a database; its rows have the types that the database gives."""

    server: Any = None

    def open(self, folder: Path) -> Master:  # noqa: ARG002 - there are no files
        return open_table(self.server, self.name, self.key)


def open_table(server: Server, name: str, key: Any, **options: Any) -> Any:
    return ss.open_master(server.url(), table=name, key=key, **options)


def payload(rows: int) -> dict[str, pa.Array]:
    """Give columns of all types that both databases have, with nulls."""
    rng = np.random.default_rng(7)
    numbers = rng.integers(-(10**9), 10**9, rows)
    moments = pa.array(numbers * 1_000_003, pa.timestamp("us"))
    return {
        "surrogate": pa.array(np.arange(rows)),
        "label": text(rows, 20, 3),
        "sign": pa.array(["naïve", "日本", '"%s"', "a\\b'c", "", "\n", "😀"]).take(
            pa.array(np.arange(rows) % 7)
        ),
        "price": with_nulls(pa.array([Decimal(int(n)).scaleb(-2) for n in numbers]), 9).cast(
            pa.decimal128(12, 2)
        ),
        "weight": with_nulls(pa.array(rng.normal(size=rows)), 11),
        "ratio": pa.array(rng.normal(size=rows).astype(np.float32)),
        "small": pa.array((numbers % 1000).astype(np.int16)),
        "active": with_nulls(pa.array(numbers % 2 == 0), 5),
        "day": with_nulls(pa.array((numbers % 20_000).astype(np.int32)).cast(pa.date32()), 6),
        "moment": with_nulls(moments, 8),
        "seen": pa.array(np.abs(numbers) * 1_000_003, pa.timestamp("us", "UTC")),
        "raw": with_nulls(pa.array([rng.bytes(int(n) % 12) for n in numbers]), 7),
    }


_WORDS = pa.array([f"{'x' * (i % 9)}-{i}-é{'Y' * (i % 3)}" for i in range(KEYS)])
_NUMBERS = pa.array(np.arange(KEYS) * 3 - 500)
_KINDS = {
    "int64": ({"key": _NUMBERS}, {}),
    "int32": ({"key": _NUMBERS.cast(pa.int32())}, {"key": _NUMBERS}),
    "int16": ({"key": _NUMBERS.cast(pa.int16())}, {"key": pa.array(np.arange(KEYS) * 100)}),
    "string": ({"key": _WORDS}, {}),
    "binary": ({"key": _WORDS.cast(pa.binary())}, {}),
    "date": ({"key": _NUMBERS.cast(pa.int32()).cast(pa.date32())}, {}),
    "moment": ({"key": pa.array(np.arange(KEYS) * 10**9 + 123_456, pa.timestamp("us"))}, {}),
    "zoned": ({"key": pa.array(np.arange(1, KEYS + 1) * 10**12, pa.timestamp("us", "UTC"))}, {}),
    "decimal": ({"key": _NUMBERS.cast(pa.decimal128(22, 3))}, {}),
    "int_and_string": (
        {
            "shop": pa.array(np.arange(KEYS) // 20),
            "code": _WORDS.take(pa.array(np.arange(KEYS) % 20)),
        },
        {},
    ),
    "string_and_date": (
        {
            "code": _WORDS.take(pa.array(np.arange(KEYS) % 20)),
            "day_key": pa.array(np.arange(KEYS) // 20).cast(pa.int32()).cast(pa.date32()),
        },
        {},
    ),
}


def names() -> list[str]:
    return [*_KINDS, "duplicates", "giant", "giant_string", "no_rows", "wide"]


def make(server: Server, name: str) -> LiveCase:
    """Make a case's table in the database; of its keys a third are absent, some null."""
    case = _case(name)
    table = f"case_{name}"
    server.load(table, case.master)
    server.execute(*_index(server, table, case.key))
    opened = open_table(server, table, case.key)
    assert opened.schema.names == case.master.schema.names
    return LiveCase(
        table, case.master.cast(opened.schema), case.stream, case.on, case.key,
        memory=64 * 1024 if name in _TIGHT else 256 * 1024, server=server,
    )  # fmt: skip


def _index(server: Server, table: str, key: tuple[str, ...]) -> list[str]:
    quote = '"' if server.scheme == "postgresql" else "`"
    columns = ", ".join(f"{quote}{name}{quote}" for name in key)
    return [f"CREATE INDEX {table}_key ON {table} ({columns})"]


def _case(name: str) -> Case:
    if name in _KINDS:
        ours, theirs = _KINDS[name]
        return _of(name, ours, {**ours, **theirs})
    repeats = {"duplicates": 4, "no_rows": 1, "wide": 1}.get(name, 1)
    word = name.endswith("string")
    keys = {"key": _WORDS if word else _NUMBERS}
    case = _of(name, keys, keys, repeats)
    if name.startswith("giant"):
        hot = pa.concat_arrays([keys["key"].slice(3, 1)] * 1500)
        case = replace(case, master=_table({"key": pa.concat_arrays([hot, keys["key"][::2]])}))
        case = replace(case, stream=tuple(b.slice(0, 9) for b in case.stream))
    if name == "wide":
        wide = pa.array([None if i % 5 == 0 else "w" * (i % 190) for i in range(len(case.master))])
        case = replace(case, master=case.master.append_column("wide", wide))
    return replace(case, master=case.master.slice(0, 0)) if name == "no_rows" else case


def _of(
    name: str, ours: dict[str, pa.Array], theirs: dict[str, pa.Array], repeats: int = 1
) -> Case:
    present = pa.array(np.repeat(np.flatnonzero(np.arange(KEYS) % 3 != 1), repeats))
    master = _table({key: with_nulls(column.take(present), 60) for key, column in ours.items()})
    drawn = pick(pa.array(np.arange(KEYS)), ROWS)
    keys = {key: with_nulls(column.take(drawn), 50) for key, column in theirs.items()}
    return Case(name, master, stream_of(keys), on=list(ours), key=tuple(ours))


def _table(keys: dict[str, pa.Array]) -> pa.Table:
    rows = len(next(iter(keys.values())))
    order = np.random.default_rng(2).permutation(rows)
    return pa.table({**keys, **payload(rows)}).take(pa.array(order))
