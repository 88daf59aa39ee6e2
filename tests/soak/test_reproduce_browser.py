"""The report opened in a real browser: it is laid out, and all its figures are drawn."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from benchmarks.harness.machine import describe
from benchmarks.harness.record import write_record
from papers.report import write_report
from papers.run.runner import path_of
from support.papers import EXPERIMENTS, record_of
from support.servers import debian

pytestmark = pytest.mark.parts

FIGURES = ("x-hybridjoin/figure-3a", "meshjoin/figure-6", "moij/figure-7e")
PROBE = """<script>addEventListener("load", () => {
  const drawn = [...document.images].filter(image => image.naturalWidth > 300).length;
  const fits = document.body.scrollWidth <= innerWidth;
  document.title = `${drawn} of ${document.images.length}, ${fits}`;
})</script></body>"""


def browser():
    """Find chromium, or fetch it with the libraries that this machine lacks."""
    call = ["apt-get", "install", "--simulate", "--no-install-recommends", "chromium"]
    found = subprocess.run(call, capture_output=True, text=True, check=False)  # noqa: S603
    packages = re.findall(r"^Inst (\S+)", found.stdout, re.MULTILINE) or ["chromium"]
    return debian.program("chromium", ["usr/lib/chromium"], packages)


def shown(page, *options):
    program = browser()
    call = [str(program), "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1200,3000"]
    done = subprocess.run(  # noqa: S603
        [*call, "--virtual-time-budget=10000", *options, page.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={**os.environ, **debian.libraries(program)},
    )
    return done.stdout


def measured(output, name):
    record = record_of(name)
    runs = [
        {**run, "x": point["x"], "label": label}
        for point in record.pop("points")
        for label, run in point["runs"].items()
    ]
    scale = {"scale": "default", "page_bytes": "128KB", "read": "direct"}
    facts = {"kind": "reproduce", "experiment": name, "machine": describe(), **scale}
    write_record({**facts, **record, "runs": runs}, path_of(output, name))


def test_the_report_is_drawn_in_a_browser(tmp_path):
    pytest.importorskip("matplotlib")
    for name in FIGURES:
        measured(tmp_path, name)
    write_report(tmp_path)
    page = tmp_path / "probed.html"
    page.write_text((tmp_path / "report.html").read_text().replace("</body>", PROBE))
    dom = shown(page, "--dump-dom")
    assert f"<title>{len(FIGURES)} of {len(FIGURES)}, true</title>" in dom
    assert all(f'id="{name}"' in dom for name in FIGURES)
    assert dom.count('class="holds"') + dom.count('class="does-not-hold"') > 2
    picture = tmp_path / "report.png"
    shown(tmp_path / "report.html", f"--screenshot={picture}")
    assert picture.stat().st_size > 50_000
    assert all(EXPERIMENTS[name].title in dom for name in FIGURES)
