"""The benchmark beside the alternatives: who is right is found out, and who is faster is told."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from dataclasses import replace

import pytest

from benchmarks.harness.command import Job
from benchmarks.harness.memory import Footprint
from benchmarks.harness.record import read_record, write_record
from benchmarks.harness.table import markdown
from benchmarks.spark import comparison
from benchmarks.spark.engine import EngineError
from benchmarks.spark.peers import parts
from benchmarks.spark.peers.claims import claims
from benchmarks.spark.peers.contest import Contest
from benchmarks.spark.peers.grid import BOUNDS, FULL, STRONG, Cell, PeersGrid
from benchmarks.spark.peers.measure import PEERS
from benchmarks.spark.queries import DifferentRowsError
from benchmarks.spark.systems import SYSTEMS
from support.cli import bench, sheets
from support.matrix import ALL

ROWS = 20_000
TINY = replace(
    PeersGrid(rows=(ROWS,), batch_rows=(500,), hows=("left",), share=0.9),
    rounds=1,
    warm=0.3,
    seconds=0.0,
    most_batches=3,
    limit=60.0,
)


class Here:
    """Calls functions in this process, where the tests' session is; some fail instead."""

    def __init__(self, *broken):
        self.broken = broken

    def call(self, where, function, *args):
        if where in self.broken:
            raise EngineError("out of memory")
        return function(*args)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("peers")


def contest(folder, engines):
    return Contest(Job(TINY, folder, {}), engines, random.Random(0))  # noqa: S311


# -- who is measured --------------------------------------------------------------------------


def test_the_grid_has_what_was_asked():
    grid = replace(PeersGrid(), full=True).complete()
    found = {(c.rows, c.how, c.batch_rows) for c in grid.cells}
    for rows, how, batch in itertools.product(grid.rows, ("left", "inner"), (10**5, 10**6)):
        assert (rows, how, batch) in found
    assert {c.batch_rows for c in grid.cells} == {10_000, 100_000, 1_000_000}
    assert {c.exponent for c in grid.cells} == {0.5, 1.0, 1.2}
    assert {c.share for c in grid.cells} == {0.01, 0.05, 0.10, 0.20}
    assert {c.duplicates for c in grid.cells} == {1, 3}
    for cell in grid.cells:
        assert set(cell.systems) <= set(SYSTEMS)
        assert "enrich" in cell.systems
        assert not {"arrow-memory", "sqlite-rows"} & set(cell.systems) or cell.rows == 2_000_000
    assert all("default" in c.systems for c in grid.cells if c.rows == FULL)
    published = [c for c in grid.cells if "enrich-meshjoin" in c.systems]
    assert [(c.rows, c.how, c.batch_rows) for c in published] == [(2_000_000, "left", 100_000)]


def test_one_system_can_be_chosen():
    grid = replace(PeersGrid(), systems=("enrich", "duckdb"))
    assert {s for cell in grid.cells for s in cell.systems} == {"enrich", "duckdb"}


def test_memory_is_measured_with_a_share_and_with_a_constant():
    found = parts.memory_settings(replace(PeersGrid(), systems=("enrich", "lmdb")))
    assert found[:2] == [("enrich", 2_000_000, 12_000_000), ("lmdb", 2_000_000, 12_000_000)]
    constant = PeersGrid().growth_memory
    assert {(rows, memory) for _, rows, memory in found[2:]} == {
        (2_000_000, constant),
        (10_000_000, 60_000_000),
        (10_000_000, constant),
    }
    assert len(found) == 5
    assert not parts.memory_settings(replace(PeersGrid(), systems=("bound",)))[1:]


# -- the contest ------------------------------------------------------------------------------


@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("how", ["left", pytest.param("inner", marks=pytest.mark.long)])
def test_all_give_the_rows_of_sparks_join(spark, folder, how):
    # DuckDB does not do with so little memory; it has a test of its own.
    some = ("enrich", "default", "broadcast", "lmdb", "sqlite-rows", "jdbc")
    all_of = (*STRONG, *BOUNDS, "lmdb-rows", "sqlite-rows") if ALL else some
    able = [name for name in all_of if name not in {"broadcast", "duckdb"}]
    cell = Cell(ROWS, how, 500, (*able, "broadcast"), share=0.9)
    found = contest(folder, Here("broadcast")).measure(cell)
    # Every other one ran: rows that differ would have raised.
    assert set(found["milliseconds"]) == set(able) - {"jdbc"}
    assert all(len(took) == 3 for rounds in found["milliseconds"].values() for took in rounds)
    assert found["failed"]["broadcast"] == "out of memory"
    assert "no database was given" in found["failed"]["jdbc"]


@pytest.mark.long
@pytest.mark.xdist_group("spark")
def test_several_rows_a_key(spark, folder):
    cell = Cell(ROWS, "left", 500, ("enrich", "default", "delta", "lmdb"), share=0.9, duplicates=3)
    found = contest(folder, Here()).measure(cell)
    assert set(found["milliseconds"]) == {"enrich", "default", "delta"}
    assert found["failed"] == {"lmdb": "it has one row a key"}


@pytest.mark.xdist_group("spark")
def test_duckdb_and_those_in_memory(spark, folder):
    engines = ("duckdb", "arrow-memory", "duckdb-memory", "polars-memory")
    big = Cell(ROWS, "left", 500, ("default", *engines), share=30)
    found = contest(folder, Here()).measure(big)
    assert set(found["milliseconds"]) == {"default", *engines}


def test_a_difference_is_seen(folder, monkeypatch):
    given = iter([[5, 1], [5, 2]])
    monkeypatch.setattr(comparison, "fingerprint", lambda *_: next(given))
    monkeypatch.setattr(comparison, "prepare", lambda *_: "")
    with pytest.raises(DifferentRowsError, match="enrich and default give different rows"):
        contest(folder, Here()).measure(Cell(ROWS, "left", 500, ("enrich",), share=0.9))


@pytest.mark.xdist_group("spark")
def test_rows_that_arrive_steadily(spark, folder):
    grid = replace(TINY, steady_rows=ROWS, steady_rate=2_000, steady_batch=500, steady_seconds=6.0)
    job = Job(grid, folder, {})
    found = {entry["system"]: entry for entry in parts.measure_steady(job, Here())}
    assert set(found) == {"none", "enrich", "default"}
    for entry in found.values():
        assert 1_000 <= sum(entry["taken"]) <= 13_000  # what arrives in six seconds, and no more
        assert entry["starts"] == sorted(entry["starts"])
        # Rows that arrive while a micro-batch lists its files, as it begins, are still taken.
        listing = 1000 * grid.steady_batch / grid.steady_rate
        took = [t - listing for t in entry["milliseconds"]]
        assert all(w >= t for w, t in zip(entry["waited"], took, strict=True))


def test_a_setting_that_fails_leaves_the_others(folder, monkeypatch):
    def some(grid, engines, system, at, batches):
        if at.options["read"] == "direct":
            raise EngineError("not one batch")
        return [9, 9, 9]

    monkeypatch.setattr(parts, "timed", some)
    grid = replace(TINY, growth=(ROWS, 2 * ROWS))
    found = list(parts.measure_growth(Job(grid, folder, {}), Here()))
    assert {e["read"] for e in found if "failed" in e} == {"direct"}
    assert len(found) == len(parts.growth_settings(grid, folder))
    assert {e["rows"] for e in found} == {ROWS, 2 * ROWS}


def test_the_footprint_of_children_is_seen():
    code = "held = bytearray(b'1') * 60_000_000; print('ready', flush=True); input()"
    footprint = Footprint(os.getpid())
    footprint.look()
    with subprocess.Popen(  # noqa: S603 - ours
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        before = footprint.most["python"]
        footprint.look()
        child.communicate(b"\n")
    assert 60_000_000 <= footprint.most["python"] - before < 90_000_000
    assert footprint.most["all"] >= footprint.most["python"]


# -- what is told -----------------------------------------------------------------------------


def cell(times, **more):
    about = {"rows": 10_000_000, "how": "left", "batch_rows": 100_000, "exponent": 1.0}
    about |= {"share": 0.05, "duplicates": 1, "memory": 60_000_000, "failed": {}} | more
    return about | {
        "milliseconds": {s: [[9000, 9000, t], [9000, 9000, t]] for s, t in times.items()}
    }


def steady(system, took, taken=10_000):
    starts = [taken // 50 * i for i in range(len(took))]
    about = {"system": system, "rows": 2_000_000, "memory": 12_000_000, "rate": 50_000}
    about |= {"batch": 10_000, "warm": 0.1, "starts": starts, "milliseconds": took}
    return about | {"taken": [taken] * len(took), "waited": [t + 20 for t in took]}


@pytest.fixture
def record():
    """A record as the benchmark writes it."""
    times = {"enrich": 500, "default": 6_000, "duckdb": 600, "lmdb": 1_000}
    cells = [cell(times), cell(times, batch_rows=10_000), cell(times, exponent=0.5)]
    grown = {"rows": 2_000_000, "memory": 64 << 20, "read": "mapped"}
    return {
        "kind": "peers",
        "grid": {
            "share": 0.05,
            "rows": [10_000_000],
            "batch_rows": [10_000, 100_000],
            "hows": ["left"],
            "growth_memory": 64 << 20,
        },
        "dropped": 2,
        "labels": {name: system.label for name, system in SYSTEMS.items()},
        "left_out": {},
        "cells": cells,
        "cores": [
            {"cores": n, "batch_rows": 10**6, "milliseconds": [9, 9, 2_000 // n]} for n in (1, 2)
        ],
        "steady": [
            steady("enrich", [400] + [150] * 99 + [190]),
            steady("default", [2_000] * 10, taken=100_000),
            {"system": "none", "failed": "out of memory"},
        ],
        "growth": [
            grown | {"batch_rows": rows, "milliseconds": [[9, 9, 300]]} for rows in (10_000, 10**6)
        ],
        "memory": [
            {
                "system": "enrich",
                "rows": 2_000_000,
                "memory": 12_000_000,
                "idle": {"java": 5, "python": 5, "all": 10},
                "busy": {"java": 7, "python": 30_000_005, "all": 30_000_012},
            },
            {"system": "broadcast", "rows": 2_000_000, "memory": 12_000_000, "failed": "no room"},
        ],
    }


def test_tables_say_what_the_record_says(record, tmp_path):
    write_record(record, tmp_path / "peers.json")
    found = {sheet.title: sheet for sheet in sheets(read_record(tmp_path / "peers.json"))}
    rates = found["R = 10,000,000 × 120 B, Zipf 1, 57.22 MB"]
    assert rates.heads == ("", "left, 100,000", "left, 10,000")
    assert rates.rows[0] == ("enrich", "200 (200–200)", "20 (20–20)")
    assert rates.rows[-1][1] == "1.20× (1.20–1.20) duckdb"
    steady = next(sheet for title, sheet in found.items() if title.startswith("50,000 rows/s"))
    assert steady.rows[0][1:] == ("150 ms", "150 ms", "190 ms", "10,000", "170 ms", "50.0")
    assert steady.rows[2][1] == "out of memory"
    assert len(steady.rows[2]) == len(steady.heads)
    memory = next(sheet for title, sheet in found.items() if title.startswith("Memory beyond"))
    assert memory.rows[0][1:] == ("2M", "11.44 MB", "2 B", "28.61 MB", "28.61 MB")
    assert "no room" in markdown(found.values())


def test_verdicts_turn_with_the_data(record):
    def verdict(what):
        return next(claim for claim in claims(record) if what in claim.what)

    assert verdict("to Spark's best").met
    assert verdict("to Spark's best").measured.startswith("12.00×")
    assert verdict("R = 50M").verdict == "–"
    assert verdict("DuckDB on disk").met
    assert not verdict("every key-value store").met
    assert verdict("two processors").met
    assert verdict("kept up").met
    assert verdict("p99").met
    for each in record["cells"]:
        each["milliseconds"]["default"] = [[9000, 9000, 400]] * 2
        each["milliseconds"]["lmdb"] = [[9000, 9000, 1_600]] * 2
    record["cores"][1]["milliseconds"] = [9, 9, 1_500]
    assert verdict("memory beyond").met
    record["memory"][0]["busy"]["all"] = 600_000_000
    assert not verdict("memory beyond").met
    assert not verdict("to Spark's best").met
    assert verdict("every key-value store").met
    assert not verdict("two processors").met
    record["steady"][0] |= {"taken": [5_000] * 101, "milliseconds": [3_000] * 101}
    assert not verdict("kept up").met
    assert not verdict("p99").met


def test_figures_are_drawn(record, tmp_path):
    PEERS.draw(record, tmp_path)
    names = {path.stem for path in tmp_path.iterdir()}
    assert names == {"memory", "rows", "batch", "growth", "steady"}
    assert "<svg" in (tmp_path / "rows.svg").read_text()


def test_wrong_choices_are_named():
    assert "Did you mean 'cells'" in bench("peers", "--part", "cels").output
    assert "Did you mean 'duckdb'" in bench("peers", "--system", "duckdbb").output
