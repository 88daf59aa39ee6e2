"""Masters whose checksums are right and whose content is not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.master.files.format import MANIFEST, Manifest, aligned, checksum
from semistream.master.files.index import _COLUMNS, IndexWriter

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

NUMBERS = [-1, 0, 1, 2, 7, 8, 255, 4095, 4096, 65_536, 2**31 - 1, -(2**31), 2**40, 2**63 - 1]


def rewrite(folder: Path, **values: object) -> None:
    """Write the manifest anew with other values; its own checksum is put right."""
    manifest = replace(Manifest.load(folder), **values)
    (folder / MANIFEST).write_bytes(manifest.dump())


def lines_of(folder: Path) -> np.ndarray:
    """The lines of the index."""
    data = (folder / Manifest.load(folder).name("index")).read_bytes()
    batch = pa.ipc.open_file(data).get_batch(0)
    lines = np.empty(batch.num_rows, dtype=_COLUMNS)
    for name in batch.schema.names:
        lines[name] = batch.column(name).to_numpy(zero_copy_only=False)
    return lines


def put_lines(folder: Path, lines: np.ndarray) -> None:
    """Write an index of these lines."""
    writer = IndexWriter()
    writer._lines += lines.tobytes()
    put_index(folder, writer.dump())


def put_index(folder: Path, content: bytes) -> None:
    """Write an index of this content."""
    (folder / Manifest.load(folder).name("index")).write_bytes(content)
    rewrite(folder, index_checksum=checksum(content))


def put_pages(folder: Path, content: bytes) -> None:
    """Write pages of this content, as long as what was there."""
    (folder / Manifest.load(folder).name("pages")).write_bytes(content)
    lines = lines_of(folder)
    for line in lines:
        start, size = int(line["offset"]), aligned(int(line["length"]))
        line["checksum"] = checksum(content[start : start + size])
    put_lines(folder, lines)


def forge(folder: Path, chance: random.Random) -> str:
    """Change something in a master and put the checksums right; tell what."""
    ways: list[Callable[[Path, random.Random], str]] = [_page, _page, _page, _line, _index, _filter]
    return chance.choice(ways)(folder, chance)


def _page(folder: Path, chance: random.Random) -> str:
    """Change words of a page: most of them in its header, or where offsets are."""
    path = folder / Manifest.load(folder).name("pages")
    content = bytearray(path.read_bytes())
    line = chance.choice(list(lines_of(folder)))
    told = []
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        most = chance.choice([int(line["length"]), 800])
        at = chance.randrange(0, min(most, int(line["length"])))
        told.append(_put(content, int(line["offset"]) + at, chance))
    put_pages(folder, bytes(content))
    return f"pages {told}"


def _put(content: bytearray, at: int, chance: random.Random) -> str:
    width = chance.choice([1, 2, 4, 8])
    at = min(at // width * width, len(content) - width)
    if chance.random() < 0.3:
        content[at] ^= 1 << chance.randrange(8)
        return f"{at} flipped"
    number = chance.choice(NUMBERS) % (1 << 8 * width)
    content[at : at + width] = number.to_bytes(width, "little")
    return f"{at}:{width}={number}"


def _line(folder: Path, chance: random.Random) -> str:
    lines = lines_of(folder)
    at, name = chance.randrange(len(lines)), chance.choice(_COLUMNS.names or ())
    kind = _COLUMNS[name]
    number = chance.choice(NUMBERS)
    if kind.kind in "iu":
        number = np.array(number % (1 << 8 * kind.itemsize), np.uint64).astype(kind)
    lines[name][at] = number
    put_lines(folder, lines)
    return f"line {at} {name}={number}"


def _index(folder: Path, chance: random.Random) -> str:
    content = bytearray((folder / Manifest.load(folder).name("index")).read_bytes())
    told = _put(content, chance.randrange(len(content)), chance)
    put_index(folder, bytes(content))
    return f"index {told}"


def _filter(folder: Path, chance: random.Random) -> str:
    words = chance.choice([1, 3, 2**31, 2**20, 100])
    rewrite(folder, filter_words=words)
    return f"filter of {words} words"
