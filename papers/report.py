"""The report: every figure, the table of verdicts, the machine; as HTML and as Markdown."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.harness.table import Sheet, markdown
from papers.experiment import Experiment, Paper
from papers.judge.claims import claims
from papers.judge.figure import caption, draw
from papers.judge.verdict import HOLDS, NOT, UNKNOWN, WEAKER, Verdict, judge, lost
from papers.published import Published, published
from papers.reading import experiments, papers
from papers.run.runner import loaded
from semistream.units import format_bytes

Record = Mapping[str, Any]


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100% } caption { text-align: left; font-weight: bold }
td, th { border: 1px solid #ccc; padding: .3rem .5rem; text-align: left; vertical-align: top }
img { width: 100%; height: auto } figure { margin: 1.5rem 0 } figcaption { color: #444 }
.holds { background: #d9f2d9 } .holds-weaker { background: #fff3c4 }
.does-not-hold { background: #f9d5d5 } .not-measured { color: #777 }
"""


@dataclass(frozen=True)
class Findings:
    """All that a report shows."""

    papers: Mapping[str, Paper]
    experiments: Mapping[str, Experiment]
    records: Mapping[str, Record]
    verdicts: Mapping[str, Verdict]

    @property
    def counts(self) -> dict[str, int]:
        """How many claims have each verdict."""
        words = Counter(verdict.word for verdict in self.verdicts.values())
        return {word: words[word] for word in (HOLDS, WEAKER, NOT, UNKNOWN)}

    def verdicts_of(self, paper: str) -> Iterator[Verdict]:
        """Return the verdicts on a paper's claims."""
        return (v for name, v in self.verdicts.items() if name.split("/")[0] == paper)

    def figures_of(self, paper: str) -> Iterator[str]:
        """Return the names of a paper's experiments that were run."""
        return (name for name in self.records if name.split("/")[0] == paper)


def read_findings(output: Path) -> Findings:
    """Read all raw runs, and judge every claim by them."""
    known = experiments()
    records = {name: record for name in known if (record := loaded(output, name))}
    verdicts = {name: judge(claim, records) for name, claim in claims().items()}
    return Findings(papers(), known, records, verdicts)


def write_report(output: Path) -> dict[str, int]:
    """Draw every figure and write ``report.html`` and ``report.md``; count the verdicts."""
    findings = read_findings(output)
    for name, record in findings.records.items():
        draw(findings.experiments[name], record, _printed(name), output / "figures" / f"{name}.svg")
    output.mkdir(parents=True, exist_ok=True)
    (output / "report.html").write_text(html(findings, output), encoding="utf-8")
    (output / "report.md").write_text(text(findings), encoding="utf-8")
    return findings.counts


def _sheets(findings: Findings) -> Iterator[Sheet]:
    """Return the tables: the verdicts by paper, what became of ``adaptive``, the machines."""
    heads = ("claim", "where", "verdict", "measured", "why")
    for name, paper in findings.papers.items():
        rows = tuple(_row(verdict) for verdict in findings.verdicts_of(name))
        yield Sheet(f"{paper.name}: claims", heads, rows)
    yield _adaptive(findings)
    yield _machines(findings)


def _row(verdict: Verdict) -> tuple[str, ...]:
    value = "–" if verdict.value is None else f"{verdict.value:.3g}"
    return (verdict.claim.says, verdict.claim.where, verdict.word, value, verdict.reason)


def _adaptive(findings: Findings) -> Sheet:
    rows = tuple(
        (x.figure, x.where, x.rival, f"{x.share:.2f} ({x.sure})", "yes" if x.same else "no")
        for x in lost(findings.records, findings.experiments)
    )
    note = "" if rows else "at no point is it below 0.97 of the best other one"
    heads = ("figure", "where", "best other", "adaptive to it", "both hold all of R")
    return Sheet("Points at which adaptive is below 0.97 of the best", heads, rows, note)


def _machines(findings: Findings) -> Sheet:
    """Return on what, when and how large each figure was measured."""
    rows = tuple(
        (
            name,
            f"{m['cpu']}, {m['cores']} cores, {format_bytes(m['memory_bytes'])}",
            f"{m['date']}, load {m['load'][0]:g}",
            f"{record['scale']}: {record['factor']:.3g} of the paper's size",
            f"pages of {record['page_bytes']}, {record['read']} reads",
        )
        for name, record in findings.records.items()
        for m in (record["machine"],)
    )
    return Sheet("What it was measured on", ("figure", "machine", "when", "size", "store"), rows)


def text(findings: Findings) -> str:
    """Write the report as Markdown; figures are in files beside it."""
    parts = ["# The papers' experiments, reproduced", _summary(findings)]
    for name, paper in findings.papers.items():
        parts.append(f"## {paper.name}\n\n{paper.citation}. Measured on: {paper.machine}.")
        for figure in findings.figures_of(name):
            said = caption(findings.experiments[figure], findings.records[figure])
            parts.append(f"![{said}](figures/{figure}.svg)\n\n{said} {_notes(findings, figure)}")
    parts.append(f"## Verdicts\n\n{markdown(_sheets(findings))}")
    return "\n\n".join(parts) + "\n"


def _summary(findings: Findings) -> str:
    counts = ", ".join(f"{word}: {count}" for word, count in findings.counts.items())
    ran = f"{len(findings.records)} of {len(findings.experiments)} experiments were run"
    rule = "Each verdict is computed from the raw runs by its rule and bounds"
    small = any(record["scale"] == "quick" for record in findings.records.values())
    doubt = " Some were run in small (quick): they show that it works, not what holds."
    return f"{ran}. Claims: {counts}. {rule}, which stand beside it.{doubt if small else ''}"


def _notes(findings: Findings, figure: str) -> str:
    statements = (f"{p.statement} ({p.read}, {p.section})" for p in _printed(figure))
    said = "; ".join(dict.fromkeys(statements))
    return f"{findings.experiments[figure].note} The paper: {said}.".strip()


def _printed(name: str) -> list[Published]:
    paper, figure = name.split("/")
    return [point for point in published(paper) if point.figure == figure]


def html(findings: Findings, output: Path) -> str:
    """Write the report as one HTML file that needs no other."""
    parts = [f"<h1>The papers' experiments, reproduced</h1><p>{escape(_summary(findings))}</p>"]
    *verdicts, adaptive, machines = _sheets(findings)
    for (name, paper), sheet in zip(findings.papers.items(), verdicts, strict=True):
        parts.append(f"<h2 id='{name}'>{escape(paper.name)}</h2>")
        parts.append(f"<p>{escape(paper.citation)}. Measured on: {escape(paper.machine)}.</p>")
        parts.append(_table(sheet))
        parts += [_figure(findings, figure, output) for figure in findings.figures_of(name)]
    parts += ["<h2>adaptive</h2>", _table(adaptive), "<h2>Machine</h2>", _table(machines)]
    head = "<meta charset='utf-8'><title>The papers' experiments, reproduced</title>"
    body = "\n".join(parts)
    head += f"<style>{_STYLE}</style>"
    return f"<!doctype html><html lang='en'><head>{head}</head><body>{body}</body></html>\n"


def _figure(findings: Findings, name: str, output: Path) -> str:
    image = (output / "figures" / f"{name}.svg").read_bytes()
    said = escape(caption(findings.experiments[name], findings.records[name]))
    source = f"data:image/svg+xml;base64,{base64.b64encode(image).decode()}"
    notes = escape(_notes(findings, name))
    return (
        f"<figure id='{name}'><img src='{source}' alt='{said}'>"
        f"<figcaption><b>{said}</b> {notes}</figcaption></figure>"
    )


def _table(sheet: Sheet) -> str:
    heads = "".join(f"<th>{escape(head)}</th>" for head in sheet.heads)
    rows = "".join(f"<tr>{''.join(_cell(cell) for cell in row)}</tr>" for row in sheet.rows)
    note = f"<p>{escape(sheet.note)}</p>" if sheet.note else ""
    caption = f"<caption>{escape(sheet.title)}</caption>"
    return f"<table>{caption}<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>{note}"


def _cell(content: str) -> str:
    known = content in {HOLDS, WEAKER, NOT, UNKNOWN}
    look = f" class='{content.replace(' ', '-')}'" if known else ""
    return f"<td{look}>{escape(content)}</td>"
