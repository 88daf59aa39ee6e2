"""Every algorithm, join type and case: the rows of the reference, within the budget."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream import testing
from semistream.arrow import keys
from semistream.errors import RowTooLargeError, UnreadOutputError
from support.hashes import colliding
from support.matrix import matrix
from support.variants import VARIANTS, each_default_variant, each_variant

HOW = ["inner", "left", "semi", "anti"]

SEVERAL = ["duplicates", "giant_string_key", "string_and_date", "variable_width", "null_keys"]

# These have what is hard: pages with parts, hashed keys, widths that vary, few rows, moving memory.
HARD = {
    "drift": "inner",
    "duplicates": "left",
    "giant_key": "semi",
    "giant_string_key": "left",
    "large_batch": "inner",
    "string_and_date": "semi",
    "variable_width": "left",
    "nested": "left",
    "one_row_master": "anti",
    "resident": "left",
}
_OPTIONS = {
    "meshjoin": [{"buffer": "4KB"}, {"buffer": "24KB"}],
    "x-hybridjoin": [{"pinned": "first"}],
    "tuned-x-hybridjoin": [{"k": 1, "l": 1}, {"k": 3, "l": 4}, {"k": 2, "pinned": "first"}],
    "cachejoin": [{"cache": 0.1}, {"cache": 0.6}],
    "r-meshjoin": [{"buffer": "24KB", "l": 3}, {"buffer": "8KB", "l": 1}],
    "ssbj": [{"buffer": "12KB"}],
    "pcsrj": [{"nodes": 1}],
    "derakhshan": [{"cache": 0.05}, {"cache": 0.8}],
    "ssij": [{"cache": 0.05}, {"cache": 0.6}],
    "partition-join": [{"cache": 0.6, "pages": 3}, {"threshold": 3}],
    "optimised-x-hybridjoin": [{"l": 1}, {"l": 2, "pinned": "first"}],
    "adaptive": [{"at_once": True}],
}
OPTIONS = {
    f"{name}-{number}": (name, options)
    for name, each in _OPTIONS.items()
    for number, options in enumerate(each)
}
OTHER_CHECKS = [check for check in testing.checks() if check is not testing.check_answers]
READ = ["mapped", "direct"]


@pytest.fixture(scope="module")
def masters(tmp_path_factory):
    """The folder in which the masters of all cases are built, each once."""
    return tmp_path_factory.mktemp("masters")


@matrix(variant=VARIANTS, case=testing.cases(), how=HOW, read=READ, filtered=[None, False])
def test_answers(variant, case, how, read, filtered, masters):
    algorithm, options = variant
    read_so = replace(testing.case(case), read=read)
    testing.check_answers(algorithm, read_so, how, masters, filter=filtered, **options)


@pytest.mark.parametrize("case", testing.cases())
@each_default_variant
def test_answers_of_every_join_type(algorithm, options, case, masters):
    for how in HOW:
        testing.check_answers(algorithm, testing.case(case), how, masters, **options)


@each_variant
def test_cases_reach_what_is_special_to_each(algorithm, options, masters):
    """Else the suite would show little: a window that holds all of the stream is drained once."""
    case = testing.case("drift")
    watched = testing.start(algorithm, case, "inner", masters, **options)
    for batch in case.stream:
        watched.offer(batch)
    metrics = watched.join.metrics
    assert metrics.answered > metrics.rows_in / 2
    if algorithm == "adaptive":
        check_special_to_adaptive(metrics, **options)
        return
    assert metrics.iterations > 30
    special = {"cachejoin": ["cache_hits", "evicted"], "moij": ["cache_hits", "evicted"]}
    special |= {"x-hybridjoin": ["pinned_hits"], "tuned-x-hybridjoin": ["pinned_hits"]}
    special |= {"pcsrj": ["cache_hits"], "derakhshan": ["cache_hits", "evicted"]}
    special |= {"ssij": ["pinned_hits", "evicted"], "partition-join": ["cache_hits", "evicted"]}
    special |= {"optimised-x-hybridjoin": ["cache_hits"], "ssbj": ["cache_hits"]}
    assert all(metrics.as_dict()[counter] for counter in special.get(algorithm, []))


def check_special_to_adaptive(metrics, at_once=None):
    if at_once is None:  # no row waits
        assert metrics.looked_up == metrics.rows_in
        assert not metrics.iterations
    else:  # a sweep is one round, of many pages
        assert metrics.iterations > 10
        assert metrics.pages_read > 4 * metrics.iterations
        assert metrics.cache_hits
        assert not metrics.looked_up


@matrix(variant=VARIANTS, case=[*HARD], check=OTHER_CHECKS, how=HOW, read=READ)
def test_hard_cases(variant, case, check, how, read, masters):
    algorithm, options = variant
    check(algorithm, replace(testing.case(case), read=read), how, masters, **options)


@pytest.mark.parametrize("case", HARD)
@each_default_variant
def test_hard_cases_in_all_checks(algorithm, options, case, masters):
    for check in OTHER_CHECKS:
        check(algorithm, testing.case(case), HARD[case], masters, **options)


@matrix(variant=OPTIONS, case=["drift", "giant_key", "giant_string_key"], how=["left", "semi"])
def test_options(variant, how, case, masters):
    algorithm, options = variant
    testing.check_answers(algorithm, testing.case(case), how, masters, **options)


@matrix(
    variant=VARIANTS,
    case=["all_absent", "all_absent_strings", "int32", "null_keys"],
    filtered=[True, False],
)
def test_with_and_without_filter(variant, case, filtered, masters):
    algorithm, options = variant
    testing.check_answers(
        algorithm, testing.case(case), "left", masters, filter=filtered, **options
    )


@matrix(variant=VARIANTS, case=["string", "string_and_date"], how=HOW, few=[(255, 250), (1, 20)])
def test_hashes_that_collide(variant, case, how, few, masters, monkeypatch):
    (algorithm, options), (mask, rows) = variant, few
    monkeypatch.setattr(keys, "_hashes", colliding(mask))
    whole = testing.case(case)
    stream = pa.Table.from_batches(whole.stream).slice(0, rows).combine_chunks()
    crowded = replace(whole, name=f"{case}_{mask}", stream=tuple(stream.to_batches(13)))
    testing.check_drains(algorithm, crowded, how, masters, **options)


@pytest.mark.parametrize("how", HOW)
@each_variant
def test_hashes_that_collide_in_a_resident_master(algorithm, options, how, masters, monkeypatch):
    monkeypatch.setattr(keys, "_hashes", colliding(7))
    whole = testing.case("resident_strings")
    crowded = replace(whole, name="resident_collisions", stream=whole.stream[:2])
    testing.check_answers(algorithm, crowded, how, masters, **options)


@each_variant
def test_offer_is_refused_while_output_is_unread(algorithm, options, masters):
    case = testing.case("zipf_1.0")
    join = ss.Join(case.open(masters), case.stream_schema, on="key", algorithm=algorithm, **options)
    join.offer(case.stream[0])
    with pytest.raises(UnreadOutputError, match="drain"):
        join.offer(case.stream[1])
    assert sum(batch.num_rows for batch in join.drain()) > 0
    assert sum(batch.num_rows for batch in join.offer(case.stream[1])) > 0


@each_variant
def test_row_that_no_window_holds_is_refused_whole(algorithm, options, masters):
    case = testing.case("variable_width")
    join = ss.Join(
        case.open(masters), case.stream_schema, on="key", memory=case.memory, algorithm=algorithm,
        **options,
    )  # fmt: skip
    watched = testing.Watched(join)
    watched.offer(case.stream[0])
    rows = case.stream[1].slice(0, 2).to_pylist()
    rows[1]["c"] = "x" * case.memory
    with pytest.raises(RowTooLargeError, match="row 1"):
        join.offer(pa.RecordBatch.from_pylist(rows, schema=case.stream_schema))
    for batch in case.stream[1:]:
        watched.offer(batch)
    testing.same_rows(watched.finish(), case.expected("inner"))


@matrix(
    check=testing.checks(),
    name=[*SEVERAL, "rare_types", "drift", "empty_batches", "large_batch"],
    nodes=[2, 3],
)
def test_pcsrj_conforms_with_several_nodes(check, name, nodes, masters):
    case, folder = testing.case(name), masters / "several"
    least = testing.least_budget("pcsrj", case, "left", folder, nodes=nodes)
    case = replace(case, memory=max(case.memory, least), resident=None)
    check("pcsrj", case, "left", folder, nodes=nodes)


@pytest.mark.parametrize("how", ["inner", "semi", "anti"])
@pytest.mark.parametrize("name", SEVERAL)
def test_pcsrj_joins_in_every_way_with_several_nodes(name, how, masters):
    case = replace(testing.case(name), memory=160_000, resident=None)
    testing.check_answers("pcsrj", case, how, masters, nodes=2)


def numbered(case):
    """The case with a column that counts its stream rows."""
    starts = np.cumsum([0, *(batch.num_rows for batch in case.stream)])
    stream = [
        batch.append_column("number", pa.array(np.arange(start, start + batch.num_rows)))
        for batch, start in zip(case.stream, starts[:-1], strict=True)
    ]
    return replace(case, stream=tuple(stream))


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", [*SEVERAL, "giant_key", "drift", "all_absent", "rare_types"])
def test_derakhshan_gives_rows_out_in_order_of_arrival(name, how, masters):
    case = numbered(testing.case(name))
    watched = testing.start("derakhshan", case, how, masters)
    for number, batch in enumerate(case.stream):
        watched.offer(batch)
        if number % 3 == 1:
            watched.read(watched.join.tick())
    out = watched.finish()
    testing.same_rows(out, case.expected(how))
    came = out["number"].to_pylist()
    assert came == sorted(came)
