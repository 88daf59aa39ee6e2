"""Any order of offers, drains, ticks and broken-off iterations gives the reference's rows.

With ``pytest --all`` it runs for long and with other examples each time.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from semistream.errors import UnreadOutputError
from semistream.testing import case, least_budget, reference_join, same_rows, start
from support.matrix import ALL
from support.variants import each_variant

SETTINGS = settings(
    max_examples=400 if ALL else 10,
    stateful_step_count=50 if ALL else 14,
    deadline=None,
    derandomize=not ALL,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
CASES = ["duplicates", "giant_key", "giant_string_key", "string_and_date", "variable_width"]
CASES += ["null_keys", "uint64_of_int64", "one_row_master", "empty_master", "resident"]
ROWS = st.sampled_from([0, 1, 2, 9, 40, 150, 400, 900])
BATCHES = st.tuples(ROWS, st.sampled_from(["any", "one", "neighbours"]), st.integers(0, 10**6))


class Joining(RuleBasedStateMachine):
    """A join under any order of calls; what comes out is compared at the end."""

    def __init__(self, algorithm, options, folder):
        super().__init__()
        self.algorithm, self.options, self.folder = algorithm, options, folder
        self.now = 0.0
        self.unread = False
        self.offered = []

    @initialize(
        name=st.sampled_from(CASES),
        how=st.sampled_from(["inner", "left", "semi", "anti"]),
        read=st.sampled_from(["mapped", "direct"]),
        tight=st.booleans(),
        max_wait=st.sampled_from([None, None, 1.0, 20.0]),
        filtered=st.sampled_from([None, False]),
    )
    def open(self, name, how, read, tight, max_wait, filtered):
        self.case, self.how = replace(case(name), read=read, resident=None), how
        if tight:
            options = {**self.options, "filter": filtered}
            least = least_budget(self.algorithm, self.case, how, self.folder, **options)
            roomy = 4096 if name == "variable_width" else 0  # for rows wider than the plan assumes
            self.case = replace(self.case, memory=least + roomy)
        self.pool = pa.Table.from_batches(self.case.stream).combine_chunks()
        options = {"max_wait": max_wait, "clock": lambda: self.now, "filter": filtered}
        options |= self.options
        self.watched = start(self.algorithm, self.case, how, self.folder, **options)
        note(str(self.watched.join.plan))

    def batch(self, rows, kind, seed):
        """Rows of the case's stream: any of them, one of them again and again, or neighbours."""
        drawn = np.random.default_rng(seed).integers(0, self.pool.num_rows, rows)
        if kind == "one":
            drawn[:] = drawn[:1]
            drawn = drawn[:30]
        if kind == "neighbours":
            drawn = (drawn[:1] + np.arange(rows)) % self.pool.num_rows
        taken = self.pool.take(drawn).combine_chunks().to_batches()
        return taken[0] if taken else self.case.stream[0].slice(0, 0)

    @precondition(lambda self: not self.unread)
    @rule(batch=BATCHES)
    def offer(self, batch):
        self.offered.append(self.batch(*batch))
        self.watched.offer(self.offered[-1])

    @precondition(lambda self: not self.unread)
    @rule(batch=BATCHES, most=st.integers(0, 3))
    def offer_and_break_off(self, batch, most):
        self.offered.append(self.batch(*batch))
        results = self.watched.join.offer(self.offered[-1])
        self.unread = True
        if most:
            self.watched.read(results, most=most)

    @precondition(lambda self: self.unread)
    @rule(batch=BATCHES)
    def offer_too_early(self, batch):
        if self.watched.join._unread is not None:
            with pytest.raises(UnreadOutputError):
                self.watched.join.offer(self.batch(*batch))

    @rule()
    def drain(self):
        self.watched.read(self.watched.join.drain())
        self.unread = False
        assert self.watched.join.waiting == 0

    @rule(most=st.integers(0, 2))
    def drain_and_break_off(self, most):
        results = self.watched.join.drain()
        self.unread = True
        if most:
            self.watched.read(results, most=most)

    @rule()
    def tick(self):
        self.watched.read(self.watched.join.tick())
        self.unread = False

    @rule(seconds=st.sampled_from([0.5, 1.0, 5.0, 100.0]))
    def time_passes(self, seconds):
        self.now += seconds

    @invariant()
    def keeps_its_budget_and_its_counters(self):
        self.watched.within_budget()
        metrics = self.watched.join.metrics
        if not self.unread:
            assert metrics.rows_in == sum(batch.num_rows for batch in self.offered)
            assert metrics.rows_in - metrics.answered == self.watched.join.waiting

    def teardown(self):
        if not self.offered:
            return
        stream, of = pa.Table.from_batches(self.offered), self.case
        expected = reference_join(stream, of.master, on=of.on, how=self.how, prefix=of.prefix)
        same_rows(self.watched.finish(), expected)


@pytest.fixture(scope="module")
def masters(tmp_path_factory):
    return tmp_path_factory.mktemp("masters")


@each_variant
def test_any_order_of_calls(algorithm, options, masters):
    more = settings(SETTINGS, max_examples=20) if algorithm == "adaptive" and not ALL else SETTINGS
    run_state_machine_as_test(lambda: Joining(algorithm, options, masters), settings=more)
