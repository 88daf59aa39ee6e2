"""The figure of the README shows what the record has."""

import json
import re
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.spark.peers.summary import draw_summary

ROOT = Path(__file__).parents[2]


def test_the_figure_of_the_readme_shows_the_record():
    figure = Figure()
    draw_summary(json.loads((ROOT / "results" / "peers.json").read_text()), figure)
    rate, memory, _ = figure.axes
    page = (ROOT / "docs" / "peers.md").read_text()
    first = re.search(r"^\| enrich \| [^|]+ \| ([\d,]+) \(", page, re.MULTILINE)[1]
    held = re.search(r"^\| enrich \| 2M \| .* \| ([\d.]+) MB \|$", page, re.MULTILINE)[1]
    assert rate.texts[0].get_text() == first
    assert memory.texts[0].get_text() == f"{float(held):,.0f}"
