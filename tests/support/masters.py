"""Masters compared with what a build from the same rows gives."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import semistream as ss
from semistream.master.files.filter import filter_words

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

PAGE = 4096
LAYOUT = {"parts": 0, "pages": 0, "largest_part": 0}


def rows_of(master: ss.Master) -> Counter[str]:
    reader, found = master.reader(), Counter[str]()
    for part in range(len(master.index.code)):
        found.update(map(repr, reader.load(part, 1)[0].to_pylist()))
    return found


def same_as_built(master: ss.Master, table: pa.Table, folder: Path) -> None:
    """Compare with a master that is built from these rows."""
    built = ss.build_master(table, folder, key=list(master.key), page_bytes=PAGE)
    assert rows_of(master) == rows_of(built)
    assert replace(master.statistics, **LAYOUT) == replace(built.statistics, **LAYOUT)
    assert master.verify() == master.pages
    _is_well_formed(master)
    if built.manifest.filter_words:
        _filter_is_good(master)


def _is_well_formed(master: ss.Master) -> None:
    index, s = master.index, master.statistics
    assert (index.page_code[1:] > index.page_code[:-1]).all()
    assert s.parts == len(index.code)
    assert s.pages == len(index.page_code)
    reader, last = master.reader(), None
    for page in range(master.pages):
        rows = [reader.load(part, 1)[0].column(0).to_pylist() for part in master.parts(page)]
        codes = [code for part in rows for code in part]
        assert codes == sorted(codes)
        assert codes[0] == index.page_code[page]
        assert last is None or codes[0] > last
        assert len(rows) == 1 or len(set(codes)) == 1
        last = codes[-1]


def _filter_is_good(master: ss.Master) -> None:
    keys = master.load_filter(master.manifest.filter_words)
    reader = master.reader()
    for part in range(len(master.index.code)):
        assert keys.may_contain(reader.load(part, 1)[0].column(0).to_numpy()).all()
    assert master.manifest.filter_words == filter_words(master.statistics.values)
    assert keys.fill <= 0.45 or master.statistics.values < 64
