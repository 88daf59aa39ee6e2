"""Reading masters: both ways, and every kind of damage is an error that names the file."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.errors import (
    CorruptPageError,
    FormatVersionError,
    MasterError,
    MasterNotFoundError,
    OptionError,
)
from semistream.master import clean_master, list_snapshots
from semistream.master.files.filter import KeyFilter, filter_words
from semistream.master.files.format import _json_checksum, checksum
from semistream.master.snapshots import pins

if TYPE_CHECKING:
    from pathlib import Path

READS = ["mapped", "direct"]
HOT = 1_500  # a join value with several parts


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """Give a master of small pages, one of which has several parts."""
    rng = np.random.default_rng(5)
    ids = np.append(rng.permutation(2_000), [HOT] * 300)
    table = pa.table({"id": ids, "name": [f"name {i}" * (i % 5) for i in range(len(ids))]})
    folder = tmp_path_factory.mktemp("built")
    ss.build_master(table, folder, key="id", page_bytes="4KB")
    return folder


@pytest.fixture
def copy(built, tmp_path) -> Path:
    shutil.copytree(built, tmp_path / "m")
    return tmp_path / "m"


def _file(folder: Path, kind: str) -> Path:
    return next(folder.glob(f"*.{kind}"))


def _flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(content)


def _codes(master: ss.Master) -> list[int]:
    reader = master.reader()
    parts = range(master.statistics.parts)
    return [c for part in parts for c in reader.load(part, 1)[0].column(0).to_pylist()]


@pytest.mark.parametrize("read", READS)
def test_both_ways_read_the_same_rows_part_by_part_or_many_at_once(read: str, built) -> None:
    master = ss.open_master(built, read=read)
    assert _codes(master) == sorted([*range(2_000), *[HOT] * 300])
    reader = master.reader(parts=5)
    for start in (0, 3, master.statistics.parts - 5):
        together = [b.to_pylist() for b in reader.load(start, 5)]
        alone = [master.reader().load(part, 1)[0].to_pylist() for part in range(start, start + 5)]
        assert together == alone
    assert reader.reads == 3
    index = master.index
    end = int(index.offset[-1]) + 4096 * -(-int(index.length[-1]) // 4096)
    assert reader.bytes_read == 5 * 4096 * 3
    assert end == master.manifest.pages_bytes == _file(built, "pages").stat().st_size
    buffer = reader.nbytes - (master.statistics.parts if read == "mapped" else 0)
    assert buffer == 5 * 4096
    assert master.verify() == master.pages


def test_the_page_of_a_code_and_the_parts_of_a_page(built) -> None:
    master = ss.open_master(built)
    pages = master.page_of(np.array([-1, 0, HOT - 1, HOT, HOT + 1, 1_999, 5_000]))
    assert pages[0] == -1
    assert pages[1] == 0
    assert pages[2] + 1 == pages[3] == pages[4] - 1  # the hot value is alone
    assert pages[5] == pages[6] == master.pages - 1
    parts = [master.parts(page) for page in range(master.pages)]
    assert [p for page in parts for p in page] == list(range(master.statistics.parts))
    assert [len(page) > 1 for page in parts] == [page == pages[3] for page in range(master.pages)]


def test_of_a_master_without_rows_all_is_held(tmp_path) -> None:
    master = ss.build_master(pa.table({"id": pa.array([], pa.int64())}), tmp_path, key="id")
    assert master.reader().held() == 1.0


def test_opening_says_what_is_there(built) -> None:
    master = ss.open_master(built, read="direct")
    assert (master.key, master.rows, master.schema.names) == (("id",), 2_300, ["id", "name"])
    text = master.describe()
    for part in ("read direct", "id (order of value)", "2,300", "2,000, at most 301 rows each"):
        assert part in text
    with pytest.raises(OptionError, match=r"read 'maped' is not known.*Did you mean 'mapped'"):
        ss.open_master(built, read="maped")


# Damage


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("where", ["first byte", "middle", "last byte", "padding"])
def test_a_flipped_byte_in_a_page_is_found_and_named(read: str, where: str, copy) -> None:
    index = ss.open_master(copy).index
    for part in (0, 7, len(index.code) - 1):
        offset, length = int(index.offset[part]), int(index.length[part])
        shift = {"first byte": 0, "middle": length // 2, "last byte": length - 1}
        place = offset + shift.get(where, 4095)
        _flip(_file(copy, "pages"), place)
        master = ss.open_master(copy, read=read)
        reader = master.reader(parts=2)
        page = next(p for p in range(master.pages) if part in master.parts(p))
        message = rf"{_file(copy, 'pages').name}: page {page}\b.*\(byte {offset:,}\).*damaged"
        for _ in range(2):  # it does not become right by asking again
            with pytest.raises(CorruptPageError, match=message):
                reader.load(part, 1)
        with pytest.raises(CorruptPageError, match=message):
            reader.load(max(0, part - 1), 2)
        with pytest.raises(CorruptPageError, match=message):
            master.verify()
        _flip(_file(copy, "pages"), place)
    assert ss.open_master(copy, read=read).verify() == master.pages


def test_a_damaged_part_of_a_large_join_value_is_named(copy) -> None:
    master = ss.open_master(copy)
    page = int(master.page_of(np.array([HOT]))[0])
    part = master.parts(page)[2]
    _flip(_file(copy, "pages"), int(master.index.offset[part]) + 9)
    with pytest.raises(CorruptPageError, match=rf"page {page}, part 2, \(byte"):
        ss.open_master(copy).verify()


@pytest.mark.parametrize("read", READS)
def test_a_flipped_byte_anywhere_in_the_index_is_found_on_opening(read: str, copy) -> None:
    path = _file(copy, "index")
    for place in range(0, path.stat().st_size, 97):
        _flip(path, place)
        with pytest.raises(CorruptPageError, match=rf"{path.name}: the index is damaged"):
            ss.open_master(copy, read=read)
        _flip(path, place)
    assert ss.open_master(copy, read=read).rows == 2_300


def test_a_flipped_byte_anywhere_in_the_manifest_is_found_on_opening(copy) -> None:
    path = copy / "manifest.json"
    whole = ss.open_master(copy)
    for place in range(path.stat().st_size):
        _flip(path, place)
        try:
            found = ss.open_master(copy)
        except MasterError as error:
            assert "manifest.json" in str(error)  # noqa: PT017 - white space may change
        else:
            assert (found.schema, found.manifest) == (whole.schema, whole.manifest)
        _flip(path, place)


def test_a_flipped_byte_anywhere_in_the_filter_is_found_on_loading(copy) -> None:
    path, words = _file(copy, "filter"), ss.open_master(copy).manifest.filter_words
    for place in range(0, path.stat().st_size, 53):
        _flip(path, place)
        master = ss.open_master(copy)
        for size in (words, words // 4, 1):
            with pytest.raises(CorruptPageError, match=rf"{path.name}: the filter is damaged"):
                master.load_filter(size)
        with pytest.raises(CorruptPageError, match="the filter is damaged"):
            master.verify()
        _flip(path, place)


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("kind", ["pages", "index", "filter"])
def test_a_cut_file_is_found_and_named(kind: str, read: str, copy) -> None:
    path = _file(copy, kind)
    size = path.stat().st_size
    for length in (0, 1, size // 2, size - 1):
        os.truncate(path, length)
        with pytest.raises(CorruptPageError, match=path.name):
            ss.open_master(copy, read=read).verify()
    path.unlink()
    with pytest.raises(MasterError, match=rf"{path.name}: this file of the master is missing"):
        ss.open_master(copy, read=read)


def test_a_cut_pages_file_tells_the_first_page_that_is_not_whole(copy) -> None:
    path, index = _file(copy, "pages"), ss.open_master(copy).index
    for length, page in ((0, 0), (4096, 1), (4097, 1), (int(index.offset[3]), 3)):
        shutil.copy(path, copy / "kept")
        os.truncate(path, length)
        with pytest.raises(CorruptPageError, match=rf"{length:,} bytes, not .*: page {page} is"):
            ss.open_master(copy)
        shutil.move(copy / "kept", path)
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(CorruptPageError, match="bytes, not"):
        ss.open_master(copy)


def test_a_file_that_is_cut_while_it_is_read_directly(copy) -> None:
    master = ss.open_master(copy, read="direct")
    reader = master.reader(parts=4)
    os.truncate(_file(copy, "pages"), 5 * 4096 + 100)
    assert len(reader.load(0, 4)) == 4
    with pytest.raises(CorruptPageError, match=r"page 5\b.* is cut off"):
        reader.load(4, 4)
    with pytest.raises(CorruptPageError, match=r"page 8\b.* is cut off"):
        reader.load(8, 1)


@pytest.mark.parametrize("version", [0, 1, 3, "2", None])
def test_another_format_version_is_refused(version: object, copy) -> None:
    path = copy / "manifest.json"
    values = json.loads(path.read_text()) | {"semistream_master": version}
    path.write_text(json.dumps(values))
    with pytest.raises(FormatVersionError, match=rf"manifest.json: format version {version!r};"):
        ss.open_master(copy)


@pytest.mark.parametrize("content", ["", "[]", "7", "{}", "not json", '{"semistream_master": 2}'])
def test_what_is_no_manifest_is_refused(content: str, copy) -> None:
    (copy / "manifest.json").write_text(content)
    with pytest.raises(MasterError, match=r"manifest\.json"):
        ss.open_master(copy)


def test_a_manifest_that_no_one_can_read_is_refused(copy) -> None:
    manifest = copy / "manifest.json"
    for content, message in (("[" * 100_000, "is damaged"), (None, "cannot be read: Is a dir")):
        manifest.unlink()
        manifest.mkdir() if content is None else manifest.write_text(content)
        with pytest.raises(MasterError, match=rf"manifest\.json: the manifest {message}"):
            ss.open_master(copy)


def _state(folder: Path, **values: object) -> None:
    """Let a manifest say something else, and have it under a right checksum."""
    path = folder / "manifest.json"
    said = json.loads(path.read_text())
    version = said.pop("semistream_master")
    del said["checksum"]
    for name, value in values.items():
        among = said["statistics"] if name in said["statistics"] else said
        among[name] = value
    head = {"semistream_master": version, "checksum": _json_checksum(said)}
    path.write_text(json.dumps(head | said))


_NONSENSE = [None, -1, 1.5, "7", [], {}, True, 2**64, "../../home", "/etc"]
_LIES = [
    *(("filter_words", 2**31), ("filter_words", 3), ("rows", 2**31 - 1), ("parts", 2**31)),
    *(("pages", 2**31), ("values", 2**40), ("most_duplicates", 2**40), ("largest_part", 2**40)),
    *(("page_bytes", 5000), ("page_bytes", 0), ("page_bytes", 2**40), ("rows", 10**6)),
    *(("key", "id"), ("key", [7]), ("key", []), ("key", ["id", "id"]), ("key", ["none"])),
    *(("source", {"kind": 7, "uri": "x"}), ("source", {"kind": "delta"}), ("more", 1)),
    *(("schema", "x"), ("schema", ""), ("schema", "AAAA"), ("statistics", {"rows": 7})),
    *(("files", "x/../../home"), ("files", f"{'0' * 32}-{'0' * 8}/../x"), ("parent", "..")),
    *(("files", f"{'0' * 32}-{'0' * 8}\n"), ("snapshot", "another")),
]
_FIELDS = [
    *("snapshot", "files", "key", "schema", "page_bytes", "statistics", "index_checksum"),
    *("pages_bytes", "filter_words", "filter_checksum", "parent", "source", "changed"),
    *("changes_checksum", "rows", "parts", "pages", "bytes", "widest_row", "largest_part"),
    *("values", "most_duplicates", "null_keys"),
]
_STATED = [*_LIES, *((name, value) for name in _FIELDS for value in _NONSENSE)]


def test_a_manifest_that_says_what_cannot_be_is_refused(copy) -> None:
    """Its checksum is right: it is no signature. Names become paths, sizes memory and loops."""
    whole = (copy / "manifest.json").read_text()
    for name, value in _STATED:
        if (name, value) == ("source", {}):
            continue
        _state(copy, **{name: value})
        with pytest.raises(MasterError, match=r"manifest\.json: the manifest says what cannot be"):
            ss.open_master(copy)
        (copy / "manifest.json").write_text(whole)
    assert ss.open_master(copy).verify()


def test_no_manifest_leads_out_of_its_folder(copy, tmp_path) -> None:
    """Neither a build nor a sync nor a clean touches what is beside the master."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years of work")
    _state(copy, files="../home", parent="../home")
    for call in (
        lambda: ss.sync_master(copy, deletes=[1]),
        lambda: clean_master(copy),
        lambda: list_snapshots(copy),
        lambda: pins.pin(copy, "query", "1"),
    ):
        with pytest.raises(MasterError, match="says what cannot be"):
            call()
    ss.build_master(pa.table({"id": [1]}), copy, key="id")
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["thesis.tex"]
    assert {path.name for path in tmp_path.iterdir()} == {"home", "m"}


def test_no_master_is_not_found(tmp_path, copy) -> None:
    for path in (tmp_path / "none", tmp_path, copy / "manifest.json"):
        with pytest.raises(MasterNotFoundError, match="no master table is here"):
            ss.open_master(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"snapshot": 7}, "snapshot=7 is a int"),
        ({"table": "products"}, "table= is for a table in a database"),
        ({"snapshto": "x"}, "option 'snapshto' is not known.*Did you mean 'snapshot'"),
        ({"path": "oracle://me:SECRET@here/x", "table": "t"}, "'oracle://here/x' is a URL"),
        ({"path": "postgresql://me:SECRET@here/x"}, "table and key must be given"),
        ({"path": "postgresql://me:SECRET@here/x", "table": "t"}, "^key must be given"),
    ],
)
def test_options_that_do_not_fit_are_told(options, message, built) -> None:
    with pytest.raises(OptionError, match=message) as told:
        ss.open_master(**({"path": built} | options))
    assert "SECRET" not in str(told.value)


@pytest.mark.parametrize(
    "option",
    [
        *({"ttl": "soon"}, {"ttl": -1}, {"ttl": float("nan")}, {"absent_ttl": "soon"}),
        *({"page_bytes": "many"}, {"feed": "none"}, {"snapshot": "x"}, {"tabel": "x"}),
    ],
    ids=str,
)
def test_options_of_a_database_are_checked_before_it_is_asked(option) -> None:
    [name] = option
    with pytest.raises(OptionError, match=name):
        ss.open_master("postgresql://me@127.0.0.1:1/x", table="t", key="id", **option)


# The filter


def test_the_filter_has_every_key_at_every_size(built) -> None:
    master = ss.open_master(built)
    words = master.manifest.filter_words
    assert words == filter_words(2_000)
    absent = np.arange(10_000, 20_000)
    while words:
        keys = master.load_filter(words)
        assert keys.may_contain(np.arange(2_000)).all()
        if words * 64 >= 8 * 2_000:
            assert keys.may_contain(absent).mean() < 0.05
        words //= 2


def test_a_filter_that_lacks_keys_is_found(copy) -> None:
    """Its checksum is right; rows would come out as absent."""
    path = _file(copy, "filter")
    words = np.frombuffer(path.read_bytes(), dtype=np.uint64).copy()
    words[len(words) // 2 :] = 0
    path.write_bytes(words.tobytes())
    _state(copy, filter_checksum=checksum(words.data))
    with pytest.raises(CorruptPageError, match=r"\.filter: the filter lacks keys of page \d+"):
        ss.open_master(copy).verify()


def test_the_filter_counts_join_values_not_rows(tmp_path) -> None:
    table = pa.table({"id": [i % 100 for i in range(10_000)]})
    master = ss.build_master(table, tmp_path, key="id")
    assert master.manifest.filter_words == filter_words(100)
    assert master.load_filter(filter_words(100)).may_contain(np.arange(100)).all()


def test_a_master_without_a_filter_says_so(tmp_path) -> None:
    master = ss.build_master(pa.table({"id": [1]}), tmp_path, key="id", filter=False)
    assert "filter   none" in master.describe()
    assert master.verify() == 1
    with pytest.raises(MasterError, match="without a filter"):
        master.load_filter(1)


@pytest.mark.parametrize(("room", "words"), [(-5, 0), (0, 0), (64, 8), (10_000, 1024)])
def test_what_part_of_a_filter_a_budget_affords(room: int, words: int) -> None:
    assert KeyFilter.affordable(1024, 64, room) == words
