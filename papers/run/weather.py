"""Weather reports: the real ones of NDP-026B for those who have them, or a stand-in of their shape.

The real files are those of Hahn, Warren and London, *Edited Synoptic Cloud Reports from Ships and
Land Stations Over the Globe, 1982-1991*: a line of 56 characters a report. As in the papers, R has
the reports of April and August, the stream those of December, and they meet on the longitude.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from semistream.errors import OptionError

Numbers = NDArray[np.int64]
Lines = NDArray[np.bytes_]


FOLDER = "ndp026b"
"""Beside the other data: where the real files are put."""
STATIONS = 10_000
"""Of the stand-in: ours, the papers do not say how many there are."""
_SEED = 2_026
_WIDTH = 56
_MONTH, _LONGITUDE = slice(2, 4), slice(14, 19)  # of a line; the longitude in hundredths
_AROUND = 36_000
_MASTER, _STREAM = (4, 8), (12,)  # months


@dataclass(frozen=True)
class Weather:
    """Reports of both sides: the longitudes, and the rest of each where it is known."""

    master: Numbers
    stream: Numbers
    master_lines: Lines | None = None
    stream_lines: Lines | None = None

    def tables(self, row_bytes: int, stream_bytes: int) -> tuple[pa.Table, pa.Table, pa.Table]:
        """Return R, R with one report a longitude, and the stream, in rows of so many bytes."""
        names = ("report", "observed")
        whole = _table(self.master, self.master_lines, row_bytes, names)
        first = np.unique(self.master, return_index=True)[1]
        stream = _table(self.stream, self.stream_lines, stream_bytes, ("december", "observed_then"))
        return whole, whole.take(pa.array(first)), stream


def _table(
    longitudes: Numbers, lines: Lines | None, row_bytes: int, names: tuple[str, str]
) -> pa.Table:
    """Return reports of so many bytes: the longitude, a number, and the report itself."""
    count, rest = len(longitudes), row_bytes - 16
    content = np.zeros(count, f"S{rest}") if lines is None else lines.astype(f"S{rest}")
    text = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(rest), count, [None, pa.py_buffer(content)]
    )
    number, report = names
    columns = {"longitude": pa.array(longitudes), number: pa.array(np.arange(count))}
    return pa.table({**columns, report: text})


def origin(folder: Path) -> str:
    """Return which reports there are, for the caption of a figure."""
    return "NDP-026B" if folder.is_dir() else "a stand-in for NDP-026B"


def stand_in(rows: int, stream_rows: int) -> Weather:
    """Make reports at fixed stations: each has its longitude, and reports 1 to 8 times a day."""
    draw = np.random.default_rng(_SEED)
    stations = draw.integers(0, _AROUND, STATIONS)
    often = draw.integers(1, 9, STATIONS).astype(np.float64)
    often /= often.sum()
    master = draw.choice(stations, rows, p=often)
    return Weather(master, draw.choice(stations, stream_rows, p=often))


def read_reports(folder: Path, rows: int, stream_rows: int) -> Weather:
    """Read the real files, plain or ``.gz``: so many reports, evenly of all that there are."""
    found: dict[bool, list[Lines]] = {True: [], False: []}
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        lines = _lines(path)
        months = _numbers(lines, _MONTH, path)
        for ours, wanted in ((True, _MASTER), (False, _STREAM)):
            found[ours].append(lines[np.isin(months, wanted)])
    master, stream = (np.concatenate(found[ours] or [np.empty(0, f"S{_WIDTH}")]) for ours in found)
    if len(master) < rows or not len(stream):
        msg = (
            f"{folder} has {len(master):,} reports of April and August and {len(stream):,} of "
            f"December; this run needs {rows:,} and some. Add files, or take the folder away for "
            "the stand-in"
        )
        raise OptionError(msg)
    master, stream = _evenly(master, rows), _evenly(stream, stream_rows)
    return Weather(_longitudes(master, folder), _longitudes(stream, folder), master, stream)


def _evenly(lines: Lines, count: int) -> Lines:
    return lines[np.linspace(0, len(lines) - 1, min(count, len(lines))).astype(np.int64)]


def _lines(path: Path) -> Lines:
    """Read the reports of a file, a line each."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    content = content.replace(b"\r\n", b"\n")
    content += b"" if content.endswith(b"\n") or not content else b"\n"
    block = np.frombuffer(content, np.uint8)
    ends = np.flatnonzero(block == ord("\n"))
    lengths = np.diff(ends, prepend=-1) - 1
    wrong = np.flatnonzero(lengths != _WIDTH)
    if len(wrong):
        msg = (
            f"{path}:{wrong[0] + 1} has {lengths[wrong[0]]} characters; a report of NDP-026B has "
            f"{_WIDTH}. Files that end in .Z are to be uncompressed before"
        )
        raise OptionError(msg)
    whole = np.ascontiguousarray(block.reshape(-1, _WIDTH + 1)[:, :_WIDTH])
    return whole.view(f"S{_WIDTH}").ravel()


def _numbers(lines: Lines, part: slice, path: Path) -> Numbers:
    texts = lines.view("S1").reshape(len(lines), _WIDTH)[:, part]
    plain = np.ascontiguousarray(texts).view(f"S{part.stop - part.start}").ravel()
    try:
        return plain.astype(np.int64)
    except ValueError as error:
        msg = f"{path}: characters {part.start + 1} to {part.stop} are no number: {error}"
        raise OptionError(msg) from None


def _longitudes(lines: Lines, path: Path) -> Numbers:
    found = _numbers(lines, _LONGITUDE, path)
    wrong = (found < 0) | (found > _AROUND)
    if wrong.any():
        msg = f"{path} has a longitude of {found[wrong][0]}; hundredths of a degree from 0 are read"
        raise OptionError(msg)
    return found
