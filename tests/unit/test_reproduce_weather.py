"""Weather reports: the real files' format, and the stand-in."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from papers.run.weather import origin, read_reports, stand_in
from semistream.errors import OptionError


def report(month: int, longitude: int, station: int = 10384) -> str:
    """Give a line: date and hour, brightness, latitude, longitude, station, and what was seen."""
    place = f"{5247:5d}{longitude:5d}{station:05d}"
    seen = "1244 4 4 6-1-140090000 2 2139999"
    return f"82{month:02d}01121{place}{seen}"


def test_real_reports_are_parted_by_month_and_keep_their_lines(tmp_path):
    lines = [report(4, 1341), report(8, 5), report(12, 1341), report(5, 99)]
    assert {len(line) for line in lines} == {56}
    (tmp_path / "APR82L").write_text("\n".join(lines[:2]) + "\n")
    (tmp_path / "REST.gz").write_bytes(gzip.compress("\r\n".join(lines[2:]).encode()))
    found = read_reports(tmp_path, 2, 10)
    assert found.master.tolist() == [1341, 5]
    assert found.stream.tolist() == [1341]
    assert origin(tmp_path) == "NDP-026B"
    whole, first, stream = found.tables(128, 128)
    assert whole["longitude"].to_pylist() == [1341, 5]
    assert first["longitude"].to_pylist() == [5, 1341]
    assert whole["observed"][0].as_py().rstrip(b"\0").decode() == lines[0]
    assert stream["observed_then"][0].as_py().rstrip(b"\0").decode() == lines[2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("short", "REPORTS:1 has 5 characters; a report of NDP-026B has 56"),
        (report(4, 1341).replace("8204", "82xx"), "characters 3 to 4 are no number"),
        (report(4, 36_001), "has a longitude of 36001"),
        (report(5, 1341), "has 0 reports of April and August and 1 of December"),
    ],
)
def test_what_is_no_report_is_told(tmp_path, content, message):
    (tmp_path / "REPORTS").write_text(content)
    (tmp_path / "STREAM").write_text(report(12, 1))
    with pytest.raises(OptionError, match=message):
        read_reports(tmp_path, 1, 1)


def test_the_stand_in_has_stations_that_report_more_or_less_often(tmp_path):
    assert "stand-in" in origin(tmp_path / "none")
    found = stand_in(50_000, 20_000)
    whole, first, stream = found.tables(128, 20)
    assert (whole.num_rows, stream.num_rows) == (50_000, 20_000)
    assert first.num_rows == len(np.unique(found.master))
    assert np.isin(found.stream, found.master).mean() > 0.95
