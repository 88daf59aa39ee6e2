"""The papers' equations: dimensions, limits, monotony, and the numbers that the papers print.

The papers print no unit costs. Constants are fitted on one printed number each; a test's name says
what is fitted and what is predicted.
"""

from collections import Counter, deque
from dataclasses import replace
from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from papers.equations import (
    Costs,
    Read,
    Sizes,
    cachejoin,
    meshjoin,
    moij,
    pcsrj,
    tuned_x_hybridjoin,
    x_hybridjoin,
)
from papers.equations.harmonic import Pages, harmonic, hit, pages_by_rank, pages_evenly
from papers.equations.queue import any_page, oldest_page
from papers.equations.search import best, least
from papers.equations.tuned_x_hybridjoin import Split
from semistream.algorithms.published.meshjoin import tuned_buffer
from semistream.errors import OptionError
from semistream.workloads import Zipf

MB = 2**20
READS = Costs(Read(1e6, 10.0))
ALL = Costs(Read(1e6, 10.0), 80.0, 60.0, 50.0, 30.0, 90.0, 5.0, 7.0, 2.0)
SMALL = Sizes(r_t=2e6, v_p=60_000)
LARGE = Sizes(r_t=100e6, v_p=0.1 * MB, ptr=4, f=1.0)  # MOIJ's tables 1; no fudge factor is given

memories = st.floats(2 * MB, 100 * MB)  # three times as much is still less than R
workloads = st.builds(
    Sizes,
    r_t=st.floats(3e6, 2e7),
    v_p=st.floats(8e3, 2e5),
    exponent=st.floats(0, 1.2),
    m=st.sampled_from([1.0, 3.0]),
    absent=st.sampled_from([0.0, 0.3]),
)


# Zipf's law and the queue


@pytest.mark.parametrize("k", [1000, 2_000_000])
def test_harmonic_sums_are_the_papers(k):
    assert harmonic(k) == pytest.approx(log(k) + 0.5772156649 + 1 / (2 * k), rel=1e-7)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.5])
def test_shares_of_the_stream_are_those_of_the_workloads(exponent):
    sizes = replace(SMALL, r_t=10_000, exponent=exponent)
    head = Zipf(10_000, exponent).probability(np.arange(1, 2001)).sum()
    assert hit(2000, sizes) == pytest.approx(head, rel=1e-9)
    assert hit(1000, replace(sizes, m=5.0, absent=0.25)) < 0.75 * head + 0.05
    assert hit(1e9, sizes) == pytest.approx(1)
    assert pages_by_rank(2000, 100, sizes).total == pytest.approx(1 - head, rel=1e-9)
    assert pages_evenly(2000, sizes).total == pytest.approx(1 - head, rel=1e-9)


@given(st.floats(1, 1e7), st.floats(1, 1e6))
def test_a_turn_of_even_pages_finds_up_to_twice_the_average(h_s, n):
    pages = Pages(np.array([1 / n]), np.array([n]))
    y = h_s / n
    assert oldest_page(h_s, pages) == pytest.approx(y + sqrt(1 + y * y), rel=1e-6)
    assert any_page(h_s, pages) == pytest.approx(y)


def _simulated(h_s, sizes, pinned, turns=3000):
    """Stream tuples for each load of the oldest tuple's page, R sorted by rank."""
    rng = np.random.default_rng(7)
    ranks = Zipf(int(sizes.r_t), sizes.exponent, scatter=False).ranks(10**6, rng)
    absent = rng.random(len(ranks)) < sizes.absent
    page = np.where(absent, -2, np.where(ranks <= pinned, -1, (ranks - pinned - 1) // sizes.d))
    queue, held, turn, waiting, i, start = deque(), Counter(), Counter(), 0, 0, 0
    for now in range(turns):
        start = i if now == turns // 3 else start
        while waiting < h_s:
            p = int(page[i])
            i += 1
            if p != -1:
                queue.append((p, turn[p]))
                held[p] += 1
                waiting += 1
        while queue[0][0] == -2 or turn[queue[0][0]] != queue[0][1]:
            waiting -= queue.popleft()[0] == -2
        p = queue[0][0]
        waiting -= held.pop(p)
        turn[p] += 1
    return (i - start) / (turns - turns // 3)


@pytest.mark.parametrize("h_s", [20, 400, 4000])
@pytest.mark.parametrize("absent", [0.0, 0.2])
def test_a_queue_simulated_serves_what_the_corrected_equation_6_says(h_s, absent):
    sizes = Sizes(r_t=20_000, v_p=50 * 120, absent=absent)
    w = tuned_x_hybridjoin.w(h_s, Split(1, 10), sizes)
    printed = tuned_x_hybridjoin.w(h_s, Split(1, 10), sizes, printed=True)
    simulated = _simulated(h_s, sizes, 500)
    assert w == pytest.approx(simulated, rel=0.04)
    assert printed < 0.6 * simulated


def test_a_page_with_half_of_the_stream_makes_turns_uneven():
    sizes = Sizes(r_t=20_000, v_p=50 * 120)
    w = tuned_x_hybridjoin.w(4000, Split(1, 0), sizes)
    assert 1 < w / _simulated(4000, sizes, 0) < 1.15  # T is not the same for all: the limit of it


# Dimensions, limits, monotony


@given(memories, workloads)
def test_memory_adds_up_and_rates_are_w_over_c_loop(m, sizes):
    b = 0.2 * m / sizes.v_p
    w = meshjoin.w(m, b, sizes)
    assert sum(meshjoin.memory(b, w, sizes).values()) == pytest.approx(m)
    assert meshjoin.service_rate(m, b, sizes, ALL) * meshjoin.c_loop(
        b, w, sizes, ALL
    ) == pytest.approx(w)
    split = Split(0.1 * m / sizes.v_p, 0.2 * m / sizes.v_p)
    assert sum(tuned_x_hybridjoin.memory(m, split, sizes).values()) == pytest.approx(m)
    h_r = 0.1 * m / sizes.v_r
    for model in (cachejoin, pcsrj, moij):
        assert sum(model.memory(m, h_r, sizes).values()) == pytest.approx(m)
    both = cachejoin.served(m, h_r, sizes)
    loop = cachejoin.c_loop(both, sizes, ALL)
    assert cachejoin.service_rate(m, h_r, sizes, ALL) * loop == pytest.approx(both.w)


@given(memories, workloads, st.floats(1.01, 3))
@settings(max_examples=10, deadline=None)
def test_more_memory_never_lowers_a_tuned_rate(m, sizes, more):
    def rates(m):
        b = meshjoin.tuned_b(m, sizes, ALL)
        split = tuned_x_hybridjoin.tuned(m, sizes, ALL, printed=True)
        yield meshjoin.service_rate(m, b, sizes, ALL)
        yield tuned_x_hybridjoin.service_rate(m, split, sizes, ALL, printed=True)
        yield moij.service_rate(m, sizes, READS)
        yield moij.service_rate(m, sizes, READS, printed=True)

    for less, most in zip(rates(m), rates(more * m), strict=True):
        assert most >= less * (1 - 1e-3)


@given(memories, workloads)
@settings(max_examples=8, deadline=None)
def test_tuned_is_never_below_one_page_of_each(m, sizes):
    def rate(split):
        return tuned_x_hybridjoin.service_rate(m, split, sizes, ALL, printed=True)

    tuned = rate(tuned_x_hybridjoin.tuned(m, sizes, ALL, printed=True))
    assert tuned >= rate(x_hybridjoin.X_HYBRIDJOIN) * (1 - 1e-3)
    assert tuned >= rate(x_hybridjoin.HYBRIDJOIN) * (1 - 1e-3)


def test_both_searches_of_k_and_l_are_at_a_top():
    for printed in (True, False):
        top = tuned_x_hybridjoin.tuned(50 * MB, SMALL, ALL, printed=printed)

        def rate(split, printed=printed):
            return tuned_x_hybridjoin.service_rate(50 * MB, split, SMALL, ALL, printed=printed)

        for k in (0.9, 1, 1.1):
            for pinned in (0.9, 1, 1.1):
                assert rate(Split(top.k * k, top.pinned * pinned)) <= rate(top) * (1 + 1e-6)


@given(memories, workloads)
@settings(max_examples=50)
def test_equation_6_is_the_fixed_point_of_the_text(m, sizes):
    sizes = replace(sizes, absent=0.0)
    h_s = tuned_x_hybridjoin.h_s(m, Split(), sizes)
    p = tuned_x_hybridjoin.matching(Split(), sizes)
    w = tuned_x_hybridjoin.w(h_s, Split(), sizes, printed=True)
    assert w == pytest.approx(w * p.new + (h_s - w) * p.old)


def test_a_short_queue_is_an_index_nested_loop_join():
    one = cachejoin.served(SMALL.v_p + SMALL.held, 0, SMALL)
    assert one.w == pytest.approx(1, rel=1e-3)


def test_a_cache_of_all_of_r_needs_no_pages():
    sizes = replace(SMALL, r_t=10_000)
    rate = cachejoin.service_rate(100 * MB, 10_000, sizes, ALL)
    assert rate == pytest.approx(1e9 / (ALL.c_s + ALL.c_h + ALL.c_o), rel=1e-3)


def test_absent_keys_take_room_and_duplicates_cost_outputs():
    for rate in (
        lambda s: meshjoin.service_rate(50 * MB, 10, s, ALL),
        lambda s: tuned_x_hybridjoin.service_rate(50 * MB, Split(), s, ALL),
        lambda s: cachejoin.service_rate(50 * MB, 1000, s, ALL),
        lambda s: moij.service_rate(50 * MB, s, ALL),
        lambda s: pcsrj.service_rate(50 * MB, 1000, s, ALL),
    ):
        assert rate(replace(SMALL, m=4.0)) < rate(SMALL)
    waits = replace(SMALL, absent=0.5)
    assert cachejoin.served(50 * MB, 1000, waits).w_n < cachejoin.served(50 * MB, 1000, SMALL).w_n


@pytest.mark.parametrize("wrong", [{"r_t": 0}, {"v_s": -1}, {"absent": 1.0}, {"exponent": -0.1}])
def test_impossible_sizes_are_refused(wrong):
    with pytest.raises(OptionError, match=next(iter(wrong))):
        replace(SMALL, **wrong)


# MESHJOIN: the optimum at 20 MB is the fit, all else is predicted

MESH = Sizes(r_t=3.5e6, v_p=MB, ptr=4)
Q = least(lambda q: meshjoin.tuned_b(20 * MB, MESH, Costs(Read(q, 1.0))), 0.93, 1e3, 1e6)
OPTIMA = {20: 0.93, 40: 1.35, 80: 1.91, 160: 2.63}
LOSSES = {40: 0.4, 80: 1.17, 160: 1.78}


def _loss(m, tuple_cost=0.0):
    return 100 * meshjoin.loss(m * MB, 0.93, MESH, Costs(Read(Q, 1.0), c_e=tuple_cost))


def test_fit_the_fixed_cost_of_a_read():
    assert round(Q / MB, 3) == 0.048


@pytest.mark.parametrize("m", [40, 80, 160])
def test_predicted_optimum_of_the_disk_buffer(m):
    found = meshjoin.tuned_b(m * MB, MESH, Costs(Read(Q, 1.0)))
    assert found == pytest.approx({40: 1.33, 80: 1.88, 160: 2.63}[m], abs=0.006)
    assert found == pytest.approx(OPTIMA[m], rel=0.02)


def test_predicted_loss_of_the_default_buffer():
    assert [round(_loss(m), 2) for m in (40, 80, 160, 320)] == [0.44, 1.26, 2.05, 2.71]


def test_loss_with_a_cost_of_tuples_fitted_at_80_mb_predicts_the_others():
    tuple_cost = least(lambda c: -_loss(80, c), -LOSSES[80], 1e-3, 1e4)
    assert _loss(40, tuple_cost) == pytest.approx(LOSSES[40], abs=0.05)
    assert _loss(160, tuple_cost) == pytest.approx(LOSSES[160], abs=0.02)
    assert 2 < _loss(320, tuple_cost) < 3  # "under 3 %" is right, "under 2 %" is not


@given(st.floats(20, 1000), st.floats(1e3, 1e6))
def test_the_closed_form_is_the_search_without_stream_buffer(m, q):
    endless = replace(MESH, r_t=3.5e12)  # then w, and with it the stream buffer, is nothing
    found = meshjoin.tuned_b(m * MB, endless, Costs(Read(q, 1.0))) * MB
    assert found == pytest.approx(tuned_buffer(m * MB, q), rel=2e-3)


@pytest.mark.parametrize("m", OPTIMA)
def test_the_closed_form_loses_nothing_at_the_papers_size(m):
    assert meshjoin.loss(m * MB, tuned_buffer(m * MB, Q) / MB, MESH, Costs(Read(Q, 1.0))) < 2e-4


# X-HYBRIDJOIN: the page's tuples (0.4M served at 50 MB) and c_I/O (70 %) are fits


def _page(printed):
    def pinned(d):
        return x_hybridjoin.served(50 * MB, Sizes(2e6, 120 * d), printed=printed).pinned

    return least(pinned, 0.4e6 / 4000, 10, 1e4)


@pytest.mark.parametrize(("printed", "d", "served"), [(True, 503, 2.004), (False, 286, 1.964)])
def test_page_fitted_at_50_mb_predicts_tuples_served_at_250_mb(printed, d, served):
    found = _page(printed)
    assert found == pytest.approx(d, abs=1)
    at_250 = x_hybridjoin.served(250 * MB, Sizes(2e6, 120 * found), printed=printed)
    assert 4000 * at_250.pinned / 1e6 == pytest.approx(served, abs=2e-3)  # "more than 2 million"


@pytest.mark.parametrize(("printed", "saved"), [(True, 0.450), (False, 0.400)])
def test_share_of_reads_saved_is_above_the_printed_third(printed, saved):
    sizes = Sizes(2e6, 120 * _page(printed))
    with_page = x_hybridjoin.served(50 * MB, sizes, printed=printed)
    without = x_hybridjoin.served(50 * MB, sizes, x_hybridjoin.HYBRIDJOIN, printed=printed)
    assert 1 - without.w / with_page.w == pytest.approx(saved, abs=2e-3)


@pytest.mark.parametrize(("printed", "c_io", "at_8m"), [(True, 748, 0.604), (False, 1106, 0.680)])
def test_hybridjoin_of_x_hybridjoin_fitted_at_half_a_million_predicts_8_million(
    printed, c_io, at_8m
):
    page = 120 * _page(printed)

    def share(r_t, read):
        costs, sizes = Costs(Read(read, 0.0), c_s=1.0), Sizes(r_t, page)
        rates = [
            x_hybridjoin.service_rate(50 * MB, split, sizes, costs, printed=printed)
            for split in (x_hybridjoin.HYBRIDJOIN, x_hybridjoin.X_HYBRIDJOIN)
        ]
        return rates[0] / rates[1]

    read = least(lambda c: -share(0.5e6, c), -0.7, 1, 1e6)
    assert read == pytest.approx(c_io, abs=2)
    assert share(8e6, read) == pytest.approx(at_8m, abs=2e-3)  # printed: 0.5


def test_the_family_is_in_the_printed_order_only_when_corrected():
    def rates(printed, page, read):
        byte = read / (Q + page)
        costs, sizes = Costs(Read(Q * byte, byte), c_s=1.0), Sizes(2e6, page)
        for m in (50 * MB, 150 * MB):
            tuned = tuned_x_hybridjoin.tuned(m, sizes, costs, printed=printed)
            scan = replace(sizes, ptr=4.0)
            yield [
                *(
                    tuned_x_hybridjoin.service_rate(m, split, sizes, costs, printed=printed)
                    for split in (tuned, x_hybridjoin.X_HYBRIDJOIN, x_hybridjoin.HYBRIDJOIN)
                ),
                meshjoin.service_rate(m, meshjoin.tuned_b(m, scan, costs), scan, costs),
            ]

    (tuned, x, hybrid, mesh), (tuned_150, x_150, *_) = rates(False, 286 * 120, 1106)
    assert tuned > 2.9 * x > 2.9 * 1.3 * mesh
    assert hybrid / mesh == pytest.approx(0.85, abs=0.01)  # printed: slightly above 1
    assert tuned_150 - x_150 > tuned - x  # the lead grows with memory
    (_, x, _, mesh), _ = rates(True, 503 * 120, 748)
    assert x < mesh  # equation 6 as printed has X-HYBRIDJOIN no faster than MESHJOIN


# PCSRJ


@pytest.mark.parametrize("nodes", [2, 5])
def test_as_printed_more_nodes_bring_nothing(nodes):
    one = cachejoin.served(50 * MB, 10_000, SMALL)
    alone = one.w / cachejoin.c_loop(one, SMALL, ALL, printed=True)
    together = pcsrj.service_rate(50 * MB, 10_000 / nodes, SMALL, ALL, nodes, printed=True)
    assert together == pytest.approx(alone, rel=0.01)


@pytest.mark.parametrize(("r_t", "tuples_only", "fitted"), [(1e6, 1.861, 1.90), (8e6, 1.878, 1.98)])
def test_predicted_gain_of_two_nodes(r_t, tuples_only, fitted):
    """Printed: 1.65 for 1M and 2 for 8M; the model's grows as well, but from 1.9."""
    sizes = replace(SMALL, r_t=r_t)
    found = pcsrj.gain(50 * MB, 5_000, sizes, Costs(Read(0.0, 0.0), c_s=1.0))
    assert found == pytest.approx(tuples_only, abs=2e-3)
    x_hybridjoins = Costs(Read(748.0, 0.0), c_s=1.0)
    assert pcsrj.gain(50 * MB, 5_000, sizes, x_hybridjoins) == pytest.approx(fitted, abs=0.01)
    assert pcsrj.gain(50 * MB, 5_000, sizes, READS) == pytest.approx(2, abs=0.01)


def test_the_busiest_node_has_at_least_the_hottest_key():
    for exponent in (0.0, 0.5, 1.0):
        sizes = replace(SMALL, exponent=exponent)
        p_1 = hit(1, sizes)
        for nodes in (2, 4, 16):
            assert pcsrj.busiest(nodes, sizes) >= (p_1 + (1 - p_1) / nodes) * 0.995
    assert pcsrj.busiest(2, replace(SMALL, exponent=0.0)) == pytest.approx(0.5, abs=1e-3)
    keys = Zipf(2_000_000, 1.0, scatter=False).sample(200_000, np.random.default_rng(3))
    assert pcsrj.odd_share(SMALL) == pytest.approx((keys % 2 == 0).mean(), abs=5e-3)


# MOIJ


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("exponent", [0.5, 1.0])
def test_theorem_2_gives_the_fastest_cache(share, exponent):
    sizes = replace(LARGE, exponent=exponent)
    m = share * sizes.r_bytes
    h_r = moij.tuned_h_r(m, sizes)
    top = best(lambda h: moij.service_rate(m, sizes, READS, h), 1, 0.99 * m / sizes.v_r)
    assert moij.service_rate(m, sizes, READS) == pytest.approx(
        moij.service_rate(m, sizes, READS, top), rel=1e-4
    )
    printed = moij.tuned_h_r(m, sizes, printed=True)
    assert printed < h_r  # without the queue's bytes the cache is too small, and loses little
    assert moij.service_rate(m, sizes, READS, printed) > 0.98 * moij.service_rate(m, sizes, READS)


@given(st.floats(0.001, 0.8), st.sampled_from([1.0, 4.0]))
def test_without_skew_there_is_no_cache(share, duplicates):
    sizes = replace(LARGE, exponent=0.0, m=duplicates)
    assert moij.tuned_h_r(share * sizes.r_bytes, sizes) == 0


def test_duplicates_make_a_value_dearer_to_cache():
    m = 0.1 * LARGE.r_bytes
    assert moij.tuned_h_r(m, replace(LARGE, m=4.0)) == pytest.approx(
        moij.tuned_h_r(m, LARGE), rel=0.3
    )
    values = [moij.tuned_h_r(m, replace(LARGE, m=d)) / d for d in (1.0, 2.0, 4.0)]
    assert values == sorted(values, reverse=True)


@given(st.floats(0.002, 0.5))
@settings(max_examples=8, deadline=None)
def test_least_memory_bears_the_rate_and_less_does_not(share):
    m = share * LARGE.r_bytes
    rate = moij.service_rate(m, LARGE, READS)
    assert moij.least_memory(rate, LARGE, READS) == pytest.approx(m, rel=1e-3)
    assert moij.service_rate(0.99 * m, LARGE, READS) < rate


def test_a_rate_beyond_all_memory_is_refused():
    with pytest.raises(OptionError, match="not reached"):
        moij.least_memory(1e9, LARGE, ALL)


def test_equation_6_as_printed_is_bytes():
    rate = moij.arrival_rate(1.2e9, LARGE, READS, printed=True)
    assert rate == pytest.approx(1.2e9 / (1e-9 * READS.c_io(LARGE.v_p)))
    assert moij.arrival_rate(1.2e9, LARGE, READS) == moij.service_rate(1.2e9, LARGE, READS)


def _lead(share, r_t, m, exponent=1.0):
    """How many times as fast MOIJ is as CACHEJOIN with that share of its memory for the cache."""
    sizes = replace(LARGE, r_t=r_t, exponent=exponent)
    other = cachejoin.service_rate(m, share * m / sizes.v_r, sizes, READS)
    return moij.service_rate(m, sizes, READS) / other


CACHE = 1 / least(lambda part: _lead(1 / part, 100e6, 1.2e8), 1.5, 20, 1e6)


def test_fit_the_cache_of_cachejoin_at_1_percent_memory_predicts_its_other_rates():
    assert round(100 * CACHE, 2) == 0.11  # % of its memory
    assert _lead(CACHE, 100e6, 1.2e9) == pytest.approx(1.87, abs=0.01)  # printed: 2, and 1.7
    assert _lead(CACHE, 20e6, 1.2e9) == pytest.approx(2.82, abs=0.01)  # printed: 2
    assert _lead(CACHE, 100e6, 1.2e9, 0.0) == pytest.approx(1, abs=1e-3)  # printed: no lead


@pytest.mark.parametrize(("share", "more"), [(0.001, 0.32), (0.01, 0.45), (0.1, 0.76)])
def test_predicted_memory_that_cachejoin_needs_more(share, more):
    """Printed: 36 to 73 % more for the same rate."""
    m = share * LARGE.r_bytes
    rate = moij.service_rate(m, LARGE, READS)

    def other(m):
        return cachejoin.service_rate(m, CACHE * m / LARGE.v_r, LARGE, READS)

    assert least(other, rate, m / 2, 8 * m) / m - 1 == pytest.approx(more, abs=0.01)
