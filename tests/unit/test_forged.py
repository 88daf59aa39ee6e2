"""Masters that lie, with checksums put right: other values or an error, never a crash or a hang."""

from __future__ import annotations

import multiprocessing
import random
import shutil
import struct
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.arrow.page_shape import PageShape
from semistream.errors import CorruptPageError, MasterError
from semistream.kernels.memory import buffer_offsets
from semistream.master.files.format import Manifest, aligned
from support.forgery import forge, lines_of, put_index, put_lines, put_pages, rewrite
from support.matrix import ALL

if TYPE_CHECKING:
    from pathlib import Path

CASES = 40 if ALL else 12  # of each master
PATIENCE = 300  # seconds for all of them: only a hang takes as long
SPAWN = multiprocessing.get_context("spawn")


def flat(folder: Path) -> ss.Master:
    rows = 3_000
    columns = {
        "id": np.arange(rows),
        "name": [None if i % 7 == 0 else f"name {i}" for i in range(rows)],
        "flag": pa.array([i % 3 == 0 for i in range(rows)]),
        "price": np.arange(rows, dtype=np.float64),
        "long": pa.array([b"x" * (i % 30) for i in range(rows)], pa.large_binary()),
    }
    return ss.build_master(pa.table(columns), folder, key="id", page_bytes="8KB")


def by_text(folder: Path) -> ss.Master:
    table = pa.table({"id": [f"key {i}" for i in range(5_000)], "n": np.arange(5_000)})
    return ss.build_master(table, folder, key="id", page_bytes="4KB")


def several(folder: Path) -> ss.Master:
    ids = [*range(3_000), *[77] * 300]
    table = pa.table({"id": ids, "name": [f"name {i}" for i in range(len(ids))]})
    return ss.build_master(table, folder, key="id", page_bytes="4KB")


def nested(folder: Path) -> ss.Master:
    rows = 1_500
    table = pa.table(
        {
            "id": np.arange(rows),
            "words": [[f"w{i}"] * (i % 4) for i in range(rows)],
            "pair": [{"a": i, "b": [str(i)]} if i % 5 else None for i in range(rows)],
            "three": pa.array([[i] * 3 for i in range(rows)], pa.list_(pa.int32(), 3)),
            "map": pa.array([[("k", i)] for i in range(rows)], pa.map_(pa.string(), pa.int64())),
        }
    )
    return ss.build_master(table, folder, key="id", page_bytes="4KB")


MASTERS = {f.__name__: f for f in (flat, by_text, several, nested)}
WAYS = [
    {"read": "mapped", "memory": "160KB"},
    {"read": "direct", "memory": "160KB"},
    {"read": "mapped", "memory": "160KB", "algorithm": "meshjoin"},
    {"read": "direct", "memory": "160KB", "algorithm": "inlj"},
    {"read": "mapped", "memory": "8MB"},
]


def joined(folder: Path, read: str, **options) -> int:
    """Ask for keys of every page and look at all values; tell how many were looked up."""
    master = ss.open_master(folder, read)
    text = pa.types.is_string(master.schema.field("id").type)
    ids = [f"key {i}" for i in range(-10, 5_100, 15)] if text else list(range(-10, 3_100, 9))
    stream = pa.record_batch({"id": ids})
    with ss.Join(master, stream.schema, how="left", on="id", **options) as join:
        for batch in [*join.offer(stream), *join.drain()]:
            batch.validate(full=False)
            for column in batch.columns:
                column.take(pa.array(np.arange(len(column)))).nbytes  # noqa: B018 - it is read
    return join.metrics.looked_up


def tried(built: Path, folder: Path, seed: int, log: Path) -> None:
    """Join forged masters in every way, in this process; the last line tells what it is at."""
    chance = random.Random(seed)  # noqa: S311
    with log.open("w", buffering=1) as told:
        for case in range(CASES):
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(built, folder)
            what = forge(folder, chance)
            for way in WAYS:
                print(case, what, way, file=told)
                try:
                    joined(folder, **way)
                except MasterError:
                    pass
                except Exception as error:
                    print("ended by", repr(error), file=told)
                    raise
        print("done", file=told)


@pytest.mark.parametrize("kind", MASTERS)
def test_a_master_that_lies_gives_other_values_or_an_error(kind, tmp_path) -> None:
    MASTERS[kind](tmp_path / "built")
    log = tmp_path / "log"
    looked_up = [joined(tmp_path / "built", **way) for way in WAYS]
    assert (looked_up[0] > 0) == (kind != "nested")
    arguments = (tmp_path / "built", tmp_path / "forged", 5, log)
    child = SPAWN.Process(target=tried, args=arguments)
    child.start()
    child.join(PATIENCE)
    if child.is_alive():
        child.kill()
        child.join()
    assert (child.exitcode, log.read_text().splitlines()[-2:][-1]) == (0, "done")


def test_every_line_of_an_index_follows_from_those_before_it(tmp_path) -> None:
    several(tmp_path / "built")
    lines = lines_of(tmp_path / "built")
    lies = {
        "code": -(2**40),
        "offset": 4096 * 3 + 1,
        "length": 2**31 - 1,
        "rows": 2**31 - 1,
        "widest": -1,
        "starts": ~lines["starts"][2],
    }
    for name, value in lies.items():
        shutil.copytree(tmp_path / "built", tmp_path / name)
        forged = lines.copy()
        forged[name][2] = value
        put_lines(tmp_path / name, forged)
        with pytest.raises(CorruptPageError, match=r"index is damaged, part [23] "):
            ss.open_master(tmp_path / name)


def test_an_index_of_other_columns_or_of_no_arrow_file_is_refused(tmp_path) -> None:
    flat(tmp_path)
    put_index(tmp_path, b"no Arrow file" * 50)
    with pytest.raises(CorruptPageError, match="index is damaged"):
        ss.open_master(tmp_path)
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"code": [1]})
    with pa.ipc.new_file(sink, batch.schema) as file:
        file.write_batch(batch)
    put_index(tmp_path, bytes(sink.getvalue()))
    with pytest.raises(CorruptPageError, match="its columns are not those"):
        ss.open_master(tmp_path)


def test_a_manifest_that_tells_of_another_index_is_refused(tmp_path) -> None:
    from dataclasses import replace  # noqa: PLC0415

    statistics = flat(tmp_path).statistics
    rewrite(tmp_path, statistics=replace(statistics, largest_part=2**40))
    with pytest.raises(MasterError, match="the manifest says what cannot be"):
        ss.open_master(tmp_path)


@pytest.mark.parametrize("words", [3, 2**31])
def test_a_filter_of_another_size_is_refused_at_once(words, tmp_path) -> None:
    flat(tmp_path)
    rewrite(tmp_path, filter_words=words)
    with pytest.raises(MasterError, match="the manifest says what cannot be"):
        ss.open_master(tmp_path)


@pytest.mark.parametrize("read", ["mapped", "direct"])
def test_offsets_of_texts_that_descend_are_refused(read, tmp_path) -> None:
    """A negative length makes room for fewer bytes than are copied."""
    master = by_text(tmp_path)
    (address,) = master.reader().addresses(range(1))
    at = master.reader().batch(0, address).column("id").buffers()[1].address - address
    path = tmp_path / Manifest.load(tmp_path).name("pages")
    content = bytearray(path.read_bytes())
    content[at + 40 : at + 44] = (10**6).to_bytes(4, "little")
    put_pages(tmp_path, bytes(content))
    with pytest.raises(CorruptPageError, match=r"page 0 \(byte 0\) does not hold what its header"):
        ss.open_master(tmp_path, read).verify()


def test_a_direct_read_never_fills_more_than_its_buffer(tmp_path) -> None:
    master = flat(tmp_path)
    reader = ss.open_master(tmp_path, "direct").reader(parts=2, run=1)
    with pytest.raises(CorruptPageError, match="more than the index has"):
        reader.addresses(range(master.pages))


def test_pages_of_every_kind_fit_their_shape() -> None:
    from test_gather import nested_arrays  # noqa: PLC0415

    for rows in (1, 7, 8, 9, 100):
        arrays = nested_arrays(rows)
        batch = pa.record_batch(
            {"code": np.arange(rows), **{str(i): a for i, a in enumerate(arrays)}}
        )
        page = pa.concat_batches([batch]).serialize()
        shape = PageShape(batch.schema)
        assert shape.fits(page, page.size, rows)
        assert not shape.fits(page, page.size, rows + 1)
        assert not shape.fits(page, page.size - 64, rows)
        assert not PageShape(batch.schema.remove(1)).fits(page, page.size, rows)


@pytest.mark.parametrize("far", [False, True], ids=["large vtable", "far field"])
def test_headers_beyond_32_kb_are_read_without_a_sign(far, tmp_path) -> None:
    """What is checked with 16 bits without a sign must be followed so, too."""
    flat(tmp_path)
    manifest = Manifest.load(tmp_path)
    lines = lines_of(tmp_path)[:1]
    page = (tmp_path / manifest.name("pages")).read_bytes()[: int(lines[0]["length"])]
    size = struct.unpack_from("<i", page, 4)[0]
    header = bytearray(72 << 10)
    header[:size] = page[8 : 8 + size]
    table = struct.unpack_from("<i", header, 0)[0]
    old = table - struct.unpack_from("<i", header, table)[0]
    entries, new = struct.unpack_from("<H", header, old)[0], aligned(size)
    header[new : new + entries] = header[old : old + entries]
    struct.pack_into("<i", header, table, table - new)
    if far:
        field = new + 4 + 2 * 2  # the third field of a message is its record batch
        head = table + struct.unpack_from("<H", header, field)[0]
        target, moved = head + struct.unpack_from("<i", header, head)[0], table + 0x9000
        struct.pack_into("<H", header, field, 0x9000)
        struct.pack_into("<i", header, moved, target - moved)
    else:
        struct.pack_into("<H", header, new, 0x8004)
    content = struct.pack("<ii", -1, len(header)) + bytes(header) + page[8 + size :]
    assert buffers_of(content, 2) == buffers_of(page, 2, moved=len(header) - size)


def buffers_of(page: bytes, count: int, moved: int = 0) -> list[int]:
    """Return where the first buffers of a page begin, as look-ups find them."""
    memory = np.frombuffer(page, np.uint8)
    out = np.zeros(count + 1, np.int32)
    numbers, nulls = np.arange(count), np.zeros(count, np.bool_)
    buffer_offsets(memory.ctypes.data, numbers, out, np.zeros(0, np.int64), nulls)
    return [at + moved if at else 0 for at in out.tolist()]
