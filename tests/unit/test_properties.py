"""Properties of the pure parts: key codes, plain types, sizes, the sort, the filter, the tuning."""

from __future__ import annotations

from datetime import UTC, date, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from semistream.algorithms.published.parts.oldest_first import grouped, oldest_first
from semistream.algorithms.published.tuned_x_hybridjoin import best_non_swappable
from semistream.arrow.keys import Keys
from semistream.arrow.types import decode, encode, plain_type, row_bytes, row_width
from semistream.errors import OptionError
from semistream.master.build.sort import ExternalSort
from semistream.master.files.filter import KeyFilter, filter_words
from semistream.units import format_bytes, parse_bytes
from support.matrix import ALL

settings.register_profile(
    "semistream",
    max_examples=1_500 if ALL else 100,
    deadline=None,
    derandomize=not ALL,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
profile = settings.get_profile("semistream")

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
INTEGERS += [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


# -- keys -------------------------------------------------------------------------------------


def limits(kind: pa.DataType) -> tuple[int, int]:
    found = np.iinfo(kind.to_pandas_dtype())
    return int(found.min), int(found.max)


def keys_of(*kinds: pa.DataType) -> Keys:
    names = [f"k{i}" for i in range(len(kinds))]
    return Keys.of(pa.schema(list(zip(names, kinds, strict=True))), names)


@st.composite
def integers(draw, kind: pa.DataType):
    low, high = limits(kind)
    edges = [v for v in (low, high, 0, -1, 1, 2**63 - 1, 2**63) if low <= v <= high]
    values = st.none() | st.integers(low, high) | st.sampled_from(edges)
    return draw(st.lists(values, max_size=20))


def valid(values, kind: pa.DataType) -> list[bool]:
    """Which values the type in which keys are compared can hold."""
    low, high = limits(pa.uint64() if kind == pa.uint64() else pa.int64())
    return [value is not None and low <= value <= high for value in values]


@profile
@given(data=st.data(), master=st.sampled_from(INTEGERS), stream=st.sampled_from(INTEGERS))
def test_integer_codes_go_by_value_whatever_the_width(data, master, stream):
    keys = keys_of(master)
    ours, theirs = data.draw(integers(stream)), data.draw(integers(master))
    theirs += [v for v in ours if v is not None and limits(master)[0] <= v <= limits(master)[1]]
    codes, others = (
        keys.encode([pa.array(values, kind)]) for values, kind in ((ours, stream), (theirs, master))
    )
    assert codes.valid.tolist() == valid(ours, master)
    assert others.valid.tolist() == valid(theirs, master)
    known = {v: c for v, c in zip(theirs, others.values.tolist(), strict=True) if v is not None}
    for value, code, ok in zip(ours, codes.values.tolist(), codes.valid, strict=True):
        assert not ok or value not in known or known[value] == code
    assert keys.decode(pa.array(others.values[others.valid])).to_pylist() == [
        v for v in theirs if v is not None
    ]


@profile
@given(data=st.data(), kind=st.sampled_from(INTEGERS))
def test_integer_codes_keep_the_natural_order(data, kind):
    values = sorted({v for v in data.draw(integers(kind)) if v is not None})
    codes = keys_of(kind).encode([pa.array(values, kind)]).values
    assert (np.diff(codes.astype(object)) > 0).all()


TEXT = st.text(max_size=12) | st.text("ab\0", max_size=20)
TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
TEXTS += [pa.dictionary(pa.int32(), pa.large_string()), pa.run_end_encoded(pa.int32(), pa.string())]


@profile
@given(
    values=st.lists(st.none() | TEXT, max_size=20),
    kinds=st.tuples(st.sampled_from(TEXTS), st.sampled_from(TEXTS)),
    cut=st.integers(0, 20),
)
def test_string_codes_do_not_depend_on_the_encoding(values, kinds, cut):
    keys = keys_of(kinds[0])
    a, b = (keys.encode([pa.array(values, kind).slice(cut)]) for kind in kinds)
    assert a.valid.tolist() == b.valid.tolist() == [v is not None for v in values[cut:]]
    assert a.values[a.valid].tolist() == b.values[b.valid].tolist()
    present = {v for v in values[cut:] if v is not None}
    assert len(set(a.values[a.valid].tolist())) == len(present)


OTHERS = {
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(date(1, 1, 1), date(9999, 12, 31)),
    pa.date64(): st.dates(date(1700, 1, 1), date(2200, 1, 1)),
    pa.timestamp("us", "UTC"): st.datetimes(
        datetime(1700, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)
    ),
    pa.timestamp("ms"): st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)).map(
        lambda t: t.replace(microsecond=0)
    ),
    pa.binary(5): st.binary(min_size=5, max_size=5),
    pa.decimal128(20, 3): st.decimals(-(10**15), 10**15, places=3),
    pa.decimal256(50, 3): st.decimals(-(10**15), 10**15, places=3),
    pa.binary(): st.binary(max_size=20),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
}


@profile
@given(data=st.data(), kinds=st.lists(st.sampled_from(list(OTHERS)), min_size=1, max_size=3))
def test_codes_of_composites_are_equal_for_equal_keys_and_no_others(data, kinds):
    row = st.tuples(*(st.none() | OTHERS[kind] for kind in kinds))
    rows = data.draw(st.lists(row, max_size=12))
    cut = data.draw(st.integers(0, 3))
    columns = [pa.array([r[i] for r in rows], kind) for i, kind in enumerate(kinds)]
    codes = keys_of(*kinds).encode([column.slice(cut) for column in columns])
    rows = rows[cut:]
    assert codes.valid.tolist() == [None not in r for r in rows]
    found = {(r, c) for r, c, v in zip(rows, codes.values.tolist(), codes.valid, strict=True) if v}
    assert len(found) == len({r for r, _ in found}) == len({c for _, c in found})


# -- plain types ------------------------------------------------------------------------------

CODED = pa.dictionary(pa.int8(), pa.string())
LEAVES = [
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.string(), TEXT),
    (pa.large_string(), TEXT),
    (pa.string_view(), TEXT),
    (pa.binary_view(), st.binary(max_size=20)),
    (pa.large_binary(), st.binary(max_size=20)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.date32(), st.dates()),
    (pa.null(), st.none()),
    (CODED, TEXT),
    (pa.dictionary(pa.uint16(), pa.large_binary()), st.binary(max_size=8)),
    (pa.dictionary(pa.int32(), pa.int64()), st.integers(0, 5)),
]


def _struct(children):
    names = [f"f{i}" for i in range(len(children))]
    kind = pa.struct([(n, t) for n, (t, _) in zip(names, children, strict=True)])
    nullable = {n: st.none() | v for n, (_, v) in zip(names, children, strict=True)}
    return kind, st.fixed_dictionaries(nullable)


def _lists(child):
    kind, values = child
    items = st.lists(st.none() | values, max_size=4)
    pairs = st.lists(st.tuples(st.text(max_size=3), st.none() | values), max_size=3)
    return st.sampled_from(
        [
            (pa.list_(kind), items),
            (pa.large_list(kind), items),
            (pa.list_(kind, 2), st.lists(st.none() | values, min_size=2, max_size=2)),
            (pa.list_view(kind), items),
            (pa.large_list_view(kind), items),
            (pa.map_(pa.string(), kind), pairs),
        ]
    )


RUNS = [pa.int8(), pa.int64(), pa.bool_(), pa.string(), pa.large_binary(), pa.date32()]
TYPES = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(_struct) | inner.flatmap(_lists),
    max_leaves=4,
)


@st.composite
def arrays(draw):
    """An array of any type, with nulls, perhaps a slice of a longer one."""
    kind, values = draw(TYPES)
    rows = draw(st.lists(st.none() | values, max_size=12))
    made = pa.array(rows, kind)
    assume(is_valid(made))
    if kind in RUNS and draw(st.booleans()):
        made = pc.run_end_encode(made)
    return made.slice(draw(st.integers(0, 4)), draw(st.integers(0, 12)))


def is_valid(array: pa.Array) -> bool:
    # pyarrow itself makes wrong arrays: below a null struct, indices into an empty dictionary.
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def plain_again(kind: pa.DataType) -> bool:
    return plain_type(kind) == kind


@settings(profile, max_examples=3 * profile.max_examples)
@given(array=arrays())
def test_decode_and_encode_are_inverse(array):
    plain = decode(array)
    plain.validate(full=True)
    assert plain_again(plain.type)
    assert plain.type == plain_type(array.type)
    assert plain.to_pylist() == array.to_pylist()
    back = encode(plain, array.type)
    back.validate(full=True)
    assert back.type == array.type
    assert back.to_pylist() == array.to_pylist()


@profile
@given(
    rows=st.lists(st.none() | st.integers(0, 9) | st.sampled_from(["a", "b"]), max_size=12),
    dense=st.booleans(),
    start=st.integers(0, 5),
)
def test_decode_and_encode_of_unions(rows, dense, start):
    kinds = [int(isinstance(row, str)) for row in rows]
    columns = [
        [row if k == kind else None for row, k in zip(rows, kinds, strict=True)] for kind in (0, 1)
    ]
    children = [pa.array(columns[0], pa.int64()), pa.array(columns[1], CODED)]
    codes, offsets = pa.array(kinds, pa.int8()), pa.array(np.arange(len(rows)), pa.int32())
    make = pa.UnionArray.from_dense if dense else pa.UnionArray.from_sparse
    union = make(codes, *([offsets] if dense else []), children).slice(start)
    plain = decode(union)
    back = encode(plain, union.type)
    back.validate(full=True)
    assert plain.to_pylist() == back.to_pylist() == rows[start:]
    assert back.type == union.type
    assert len(row_bytes(pa.record_batch({"a": plain}))) == len(rows[start:])


@profile
@given(array=arrays(), start=st.integers(0, 5), length=st.integers(0, 12))
def test_encode_of_a_slice(array, start, length):
    piece = decode(array).slice(start, length)
    back = encode(piece, array.type)
    back.validate(full=True)
    assert back.to_pylist() == array.to_pylist()[start : start + length]


@settings(profile, max_examples=3 * profile.max_examples)
@given(array=arrays(), copies=st.sampled_from([1, 3, 40]))
def test_rows_take_no_more_bytes_than_is_counted(array, copies):
    plain = pa.concat_arrays([decode(array)] * copies)
    batch = pa.record_batch({"a": plain, "b": plain})
    sizes = row_bytes(batch)
    assert len(sizes) == batch.num_rows
    # Beside the rows there is one more offset, and the last byte of a bitmap, for each buffer.
    buffers = sum(buffer is not None for column in batch.columns for buffer in column.buffers())
    copied = batch.take(pa.array(np.arange(batch.num_rows)))
    assert sizes.sum() + 16 * buffers >= copied.nbytes
    width = row_width(plain.type)
    assert width is None or (sizes == 2 * width + 1).all()


@profile
@given(array=arrays(), start=st.integers(0, 5), length=st.integers(0, 12))
def test_row_bytes_of_a_slice(array, start, length):
    batch = pa.record_batch({"a": decode(array)})
    assert row_bytes(batch.slice(start, length)).tolist() == (
        row_bytes(batch)[start : start + length].tolist()
    )


# -- the external sort ------------------------------------------------------------------------


@profile
@given(
    runs=st.lists(st.lists(st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1)), max_size=12),
    memory=st.sampled_from([1, 200, 1_000, 10_000, 1 << 20]),
)
@example(runs=[[3] * 50, [3] * 50, [1, 3], [3, 9]], memory=1)
@example(runs=[[i % 7] for i in range(400)], memory=1)
def test_external_sort_is_a_stable_sort(runs, memory, tmp_path):
    sizes = [len(run) for run in runs]
    codes = np.array([code for run in runs for code in run], dtype=np.int64)
    text = [f"{'x' * (i % 30)}{i}" for i in range(len(codes))]
    schema = pa.schema([("code", pa.int64()), ("n", pa.int64()), ("text", pa.string())])
    table = pa.record_batch([pa.array(codes), pa.array(np.arange(len(codes))), text], schema=schema)
    sort = ExternalSort(schema, memory, tmp_path)
    try:
        for end, size in zip(np.cumsum(sizes), sizes, strict=True):
            sort.add(table.take(pa.array(np.arange(end - size, end))))
        seen = []
        merged = pa.Table.from_batches(list(sort.merged(seen.append)), schema)
    finally:
        sort.close()
    expected = table.take(pa.array(np.argsort(codes, kind="stable")))
    assert merged.combine_chunks().equals(pa.Table.from_batches([expected]).combine_chunks())
    assert sum(seen) == sort.rows == len(codes)
    assert not list(tmp_path.iterdir())


# -- the key filter ---------------------------------------------------------------------------


@profile
@given(
    codes=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=200),
    others=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50),
)
def test_filter_forgets_no_key_however_it_is_folded(codes, others):
    keys = KeyFilter(np.zeros(filter_words(len(codes)), dtype=np.uint64))
    present = np.array(codes, dtype=np.int64)
    keys.add(present)
    words, passed = len(keys.words), set()
    while words:
        folded = keys.folded(words)
        assert len(folded.words) == words
        assert folded.may_contain(present).all()
        may = {
            c
            for c, yes in zip(others, folded.may_contain(np.array(others, "i8")), strict=True)
            if yes
        }
        assert passed <= may  # a smaller filter lets more pass, and none less
        passed, words = may, words // 2


@pytest.mark.parametrize(("bits", "most"), [(16, 0.01), (8, 0.04), (4, 0.2)])
def test_filter_lets_few_absent_keys_pass(bits, most):
    rng = np.random.default_rng(1)
    codes = rng.integers(-(2**62), 2**62, 2**14 * 16 // 16)
    keys = KeyFilter(np.zeros(len(codes) * 16 // 64, dtype=np.uint64))
    keys.add(codes)
    folded = keys.folded(len(codes) * bits // 64)
    assert folded.may_contain(rng.integers(2**62, 2**63 - 1, 100_000)).mean() < most
    assert folded.may_contain(np.arange(100_000)).mean() < most


# -- sizes ------------------------------------------------------------------------------------

UNITS = {"B": 1, "": 1, "K": 2**10, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}


@profile
@given(
    number=st.integers(1, 10**6),
    unit=st.sampled_from(list(UNITS)),
    space=st.sampled_from(["", " "]),
    lower=st.booleans(),
)
def test_sizes_are_read_as_they_are_written(number, unit, space, lower):
    size = UNITS[unit] * number
    written = f"{number}{space}{unit.lower() if lower else unit}"
    assert parse_bytes(written) == parse_bytes(f"{number:,}{unit}") == parse_bytes(size) == size
    assert abs(parse_bytes(format_bytes(size)) - size) <= size / 1000


@profile
@given(wrong=st.text(max_size=6).filter(lambda t: not any(c.isdigit() for c in t)) | st.floats())
@example(wrong="0KB")
@example(wrong=0)
@example(wrong=-4096)
@example(wrong=True)
@example(wrong=None)
@example(wrong="1e6")
@example(wrong="-1MB")
@example(wrong="64 XB")
@example(wrong="1.2.3KB")
def test_what_is_no_size_is_refused(wrong):
    with pytest.raises(OptionError, match="is not a size"):
        parse_bytes(wrong)


# -- the tuning of Tuned X-HYBRIDJOIN -----------------------------------------------------------


def simulated_reads(share: np.ndarray, window: int, rows: int) -> float:
    """Pages read for a stream row: the window is full, its oldest row chooses the page."""
    rng = np.random.default_rng(5)
    arriving = iter(rng.choice(len(share), size=rows + window, p=share / share.sum()).tolist())
    waiting = [next(arriving) for _ in range(window)]
    served = reads = 0
    while served < rows:
        page = waiting[0]
        left = [row for row in waiting if row != page]
        gone = len(waiting) - len(left)
        served, reads = served + gone, reads + 1
        try:
            waiting = left + [next(arriving) for _ in range(gone)]
        except StopIteration:
            break
    return reads / served * share.sum()


@pytest.mark.parametrize("exponent", [0.0, 0.6, 1.0, 1.4])
@pytest.mark.parametrize("window", [30, 300])
@pytest.mark.parametrize("pinned", [0, 5])
def test_page_reads_as_a_simulation_counts_them(exponent, window, pinned):
    share = np.arange(1, 201.0) ** -exponent
    share = (share / share.sum())[pinned:]
    expected = simulated_reads(share, window, 20_000)
    assert oldest_first(grouped(share), window).reads == pytest.approx(expected, rel=0.12)


@profile
@given(
    counts=st.lists(st.integers(0, 1000), min_size=2, max_size=60),
    window=st.floats(1, 1e4),
    more=st.floats(1.1, 10),
)
def test_page_reads_are_a_share_and_fall_with_the_window(counts, window, more):
    share = np.array(counts, dtype=np.float64)
    share /= max(1.0, share.sum())
    few, many = (oldest_first(grouped(share), rows).reads for rows in (window, window * more))
    assert 0 <= many <= few + 1e-9 <= 1 + 2e-9


@profile
@given(
    counts=st.lists(st.integers(0, 1000), min_size=1, max_size=60),
    pages=st.integers(1, 100),
    least=st.integers(0, 10_000),
)
def test_tuning_leaves_the_window_what_it_needs(counts, pages, least):
    memory = least + pages * 4096
    chosen = best_non_swappable(np.array(counts, dtype=np.uint32), memory, 4096, 60.0, least)
    assert 1 <= chosen <= max(1, len(counts))
    assert memory - chosen * 4096 >= least
