"""Gathers by address: what compiled code takes out of pages is what Arrow takes out of them."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from semistream.arrow.gather import OutputColumns, copies
from semistream.arrow.page_directory import PageDirectory
from semistream.arrow.types import decode, row_width
from semistream.kernels.chains import GONE, WAITING, chain_pages, count_waiting
from semistream.kernels.search import even_step, look_up, match_run, pages_of
from support.matrix import ALL

profile = settings(
    max_examples=1_500 if ALL else 100,
    deadline=None,
    derandomize=not ALL,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

FIXED = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64()]
FIXED += [pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.date32(), pa.date64()]
FIXED += [pa.time32("s"), pa.time64("ns"), pa.timestamp("us"), pa.timestamp("ms", "UTC")]
FIXED += [pa.duration("ns"), pa.month_day_nano_interval()]
FIXED += [pa.decimal32(7, 2), pa.decimal64(15, 2), pa.decimal128(30, 3), pa.decimal256(60, 5)]
FIXED += [pa.binary(width) for width in (0, 1, 2, 3, 4, 5, 7, 8, 12, 16, 17)]
FIXED += [pa.binary(width) for width in (31, 32, 33, 64, 88, 256, 257)]
TEXTS = [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()]
FLAT = [*FIXED, *TEXTS, pa.bool_()]


def valid_bits(draw, rows: int) -> pa.Buffer | None:
    """Validity of so many rows: for some arrays none is kept, in others all or none are null."""
    kind = draw(st.sampled_from(["none", "any", "all"]))
    if kind == "none":
        return None
    bits = (
        [False] * rows
        if kind == "all"
        else draw(st.lists(st.booleans(), min_size=rows, max_size=rows))
    )
    return pa.py_buffer(np.packbits(np.array(bits, dtype=bool), bitorder="little").tobytes())


@st.composite
def flat_arrays(draw, kind: pa.DataType, rows: int):
    """An array of any bits that its type can have, perhaps a slice of a longer one."""
    before = draw(st.integers(0, 9))
    total = rows + before
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    valid = valid_bits(draw, total)
    if kind in TEXTS:
        ends = np.append(0, np.cumsum(rng.integers(0, draw(st.sampled_from([1, 4, 40])), total)))
        wide = kind in {pa.large_string(), pa.large_binary()}
        data = rng.integers(97, 123, int(ends[-1]), dtype=np.uint8).tobytes()
        buffers = [pa.py_buffer(ends.astype(np.int64 if wide else np.int32)), pa.py_buffer(data)]
    elif kind == pa.bool_():
        buffers = [pa.py_buffer(rng.bytes(total // 8 + 1))]
    else:
        buffers = [pa.py_buffer(rng.bytes(total * row_width(kind)))]
    return pa.Array.from_buffers(kind, total, [valid, *buffers]).slice(before)


def nested_arrays(rows: int) -> list[pa.Array]:
    """One array of each type that is passed over when others are gathered."""
    ends = pa.array(np.arange(rows + 1) // 2, pa.int32())
    words = pa.array(["w" * (i % 3) if i % 4 else None for i in range(rows)], pa.string())
    inner = pa.array([i if i % 3 else None for i in range(rows)], pa.int16())
    struct = pa.StructArray.from_arrays([words, inner, pa.nulls(rows)], ["a", "b", "c"])
    holes = pa.array([i % 2 == 0 for i in range(rows)], pa.bool_())
    kinds = pa.array(np.arange(rows) % 2, pa.int8())
    return [
        struct,
        pa.StructArray.from_arrays([struct], ["s"], mask=holes),
        pa.ListArray.from_arrays(ends, words),
        pa.LargeListArray.from_arrays(ends.cast(pa.int64()), struct),
        pa.ListArray.from_arrays(ends, pa.ListArray.from_arrays(ends, inner)),
        pa.FixedSizeListArray.from_arrays(pa.array(np.arange(3 * rows)), 3),
        pa.MapArray.from_arrays(ends, words.fill_null("k"), inner),
        pa.UnionArray.from_sparse(kinds, [words, inner]),
        decode(
            pa.UnionArray.from_dense(kinds, pa.array(np.arange(rows), pa.int32()), [words, inner])
        ),
        decode(words.dictionary_encode()),
        decode(words.cast(pa.string_view())),
        pa.nulls(rows),
    ]


NESTED = len(nested_arrays(1))


@st.composite
def pages(draw, count: int = 1):
    """Pages of one schema: a code, and flat columns with others before and between them."""
    flat = draw(st.lists(st.sampled_from(FLAT), min_size=1, max_size=4))
    other = draw(st.lists(st.integers(0, NESTED - 1), max_size=4))
    order = draw(st.permutations([*range(len(flat)), *(-1 - i for i in other)]))
    wanted = [f"flat {i}" for i in draw(st.permutations(range(len(flat))))]
    made = []
    for _ in range(count):
        rows = draw(st.integers(1, 20))
        columns = {"code": pa.array(np.arange(rows))}
        for place, number in enumerate(order):
            if number >= 0:
                columns[f"flat {number}"] = draw(flat_arrays(flat[number], rows))
            else:
                columns[f"nested {place}"] = nested_arrays(rows)[-1 - number]
        made.append(pa.record_batch(columns))
    return made, wanted


def noted(
    batches: list[pa.RecordBatch], wanted: list[str]
) -> tuple[PageDirectory, list[pa.Buffer]]:
    """The directory of pages written as a build writes them, and the memory that it refers to."""
    messages = [pa.concat_batches([batch]).serialize() for batch in batches]
    blocks = PageDirectory(batches[0].schema, wanted, len(batches))
    for block, message in enumerate(messages):
        blocks.note(block, np.array([message.address]))
    return blocks, messages


def same_values(found: pa.Array, expected: pa.Array) -> None:
    assert found.type == expected.type
    assert found.null_count == expected.null_count
    if found.type in FIXED:  # by bits: a NaN is a value as good as others
        found, expected = (
            pa.Array.from_buffers(
                pa.binary(row_width(a.type)), len(a), a.buffers(), offset=a.offset
            )
            for a in (found, expected)
        )
    found.validate(full=True)
    assert found.equals(expected)


@settings(profile, max_examples=2 * profile.max_examples)
@given(made=pages())
def test_buffers_lie_where_arrow_finds_them(made):
    (batch,), wanted = made
    blocks, (message,) = noted([batch], wanted)
    read = pa.ipc.read_record_batch(message, batch.schema)
    assert blocks.start.tolist() == [message.address]
    assert blocks.nbytes == PageDirectory.cost(batch.schema, wanted)

    def offsets(array):
        return [
            b.address - message.address if b is not None and b.size else 0 for b in array.buffers()
        ]

    assert blocks.codes.tolist() == [offsets(read["code"])[1]]
    for name, column, line in zip(wanted, blocks.columns, blocks.value_lines, strict=True):
        assert column.kind == batch.schema.field(name).type
        assert blocks.offsets[column.lines, 0].tolist() == offsets(read[name])
        assert blocks.offsets[line, 0] == offsets(read[name])[1]


@pytest.mark.parametrize("number", range(NESTED))
def test_each_other_type_before_a_flat_one(number):
    other = nested_arrays(7)[number]
    flat = pa.array([1, None, 3, 4, 5, 6, 7], pa.int16())
    batch = pa.record_batch({"code": np.arange(7), "other": other, "flat": flat})
    blocks, kept = noted([batch], ["flat"])
    found = blocks.gather(blocks.columns[0], np.zeros(7, np.int32), np.arange(7))
    same_values(found, flat)
    assert kept


@st.composite
def choices(draw, batches):
    """Rows of these pages, in any order: the page of each, and where it stands there."""
    some = draw(st.lists(st.integers(0, len(batches) - 1), max_size=40))
    place = [draw(st.integers(0, batches[b].num_rows - 1)) for b in some]
    return np.array(some, dtype=np.int32), np.array(place, dtype=np.int64)


def taken(batches, name, block, position) -> pa.Array:
    column = pa.concat_arrays([batch[name] for batch in batches])
    first = np.cumsum([0, *(batch.num_rows for batch in batches)])
    return column.take(pa.array(first[block] + position))


@profile
@given(data=st.data())
def test_blocks_gather_as_arrow_takes(data):
    batches, wanted = data.draw(pages(count=data.draw(st.integers(1, 4))))
    blocks, _kept = noted(batches, wanted)
    block, position = data.draw(choices(batches))
    for name, column in zip(wanted, blocks.columns, strict=True):
        same_values(blocks.gather(column, block, position), taken(batches, name, block, position))


@profile
@given(data=st.data())
def test_gathered_is_what_arrow_takes_and_puts_together(data):
    batches, wanted = data.draw(pages(count=data.draw(st.integers(1, 4))))
    blocks, _kept = noted(batches, wanted)
    kinds = [batches[0].schema.field(name).type for name in wanted]
    steps = data.draw(st.lists(st.tuples(choices(batches), st.booleans()), max_size=4))
    gathered = OutputColumns(kinds, rows=sum(len(block) for (block, _), _ in steps))
    expected = [[pa.nulls(0, kind)] for kind in kinds]
    for (block, position), by_address in steps:
        if by_address:
            gathered.append_from(blocks, block, position)
        else:  # all of one page
            block[:] = block[:1]
            source = batches[block[0] if len(block) else 0]
            np.remainder(position, source.num_rows, out=position)
            gathered.append([source[name] for name in wanted], position)
        for name, pieces in zip(wanted, expected, strict=True):
            pieces.append(taken(batches, name, block, position))
    for found, pieces in zip(gathered.arrays(), expected, strict=True):
        same_values(found, pa.concat_arrays(pieces))


@pytest.mark.parametrize("kind", FLAT, ids=str)
def test_each_type_with_nulls_in_one_page_of_two(kind):
    one = {pa.bool_(): True} | dict.fromkeys(TEXTS, "ab")
    width = row_width(kind) if kind in FIXED else 0
    if kind in one:
        whole = pa.array([one[kind]] * 9, kind)
    else:
        data = np.random.default_rng(1).bytes(9 * width)
        whole = pa.Array.from_buffers(kind, 9, [None, pa.py_buffer(data)])
    holed = whole.take(pa.array([0, None, 2, 3, None, 5, 6, 7, None]))
    batches = [pa.record_batch({"code": np.arange(9), "v": v}) for v in (whole, holed)]
    blocks, _kept = noted(batches, ["v"])
    block, position = np.repeat(np.arange(2, dtype=np.int32), 9), np.tile(np.arange(9)[::-1], 2)
    gathered = OutputColumns([kind], rows=54)
    for _ in range(2):
        gathered.append_from(blocks, block, position)
    gathered.append([whole], position[:9])
    gathered.append([holed.slice(3)], np.arange(6))
    expected = pa.concat_arrays(
        [*2 * [taken(batches, "v", block, position)], whole[::-1], holed.slice(3)]
    )
    same_values(gathered.arrays()[0], expected)
    same_values(blocks.gather(blocks.columns[0], block, position), expected.slice(0, 18))
    assert PageDirectory.possible(pa.schema([("v", kind)]))
    assert copies(pa.schema([("v", kind)])) == (1 if kind in FIXED else 2)


@pytest.mark.parametrize("number", range(NESTED))
def test_nested_types_are_gathered_by_arrow_alone(number):
    array = nested_arrays(9)[number]
    if array.type in TEXTS:
        pytest.skip("decoded, it is flat")
    assert not PageDirectory.possible(pa.schema([("v", array.type)]))
    gathered = OutputColumns([array.type], rows=9)
    gathered.append([array], np.array([3, 1]))
    gathered.append([array], np.array([8]))
    assert gathered.arrays()[0].to_pylist() == [array.to_pylist()[i] for i in (3, 1, 8)]


def test_decimals_keep_their_values():
    kind = pa.decimal128(10, 2)
    page = pa.record_batch({"code": [1, 2], "v": pa.array([Decimal("1.25"), None], kind)})
    blocks, _kept = noted([page], ["v"])
    found = blocks.gather(blocks.columns[0], np.zeros(3, np.int32), np.array([1, 0, 0]))
    assert found.to_pylist() == [None, Decimal("1.25"), Decimal("1.25")]


# -- finding rows -------------------------------------------------------------------------------

CODES = st.integers(-8, 8) | st.integers(-(2**63), 2**63 - 1) | st.integers(2**63 - 9, 2**63 - 1)
CODES |= st.integers(-(2**63), -(2**63) + 9)


SMALL = st.integers(-50, 50)


@st.composite
def sorted_pages(draw):
    """Codes in order, cut into pages where the code changes."""
    dense = st.builds(
        lambda first, count: list(range(first, first + count)), SMALL, st.integers(1, 60)
    )
    even = st.builds(
        lambda first, step, count: [min(first + i * step, 2**63 - 1) for i in range(count)],
        CODES,
        st.sampled_from([2, 3, 1000, 2**31 - 1, 2**31, 2**40]),
        st.integers(1, 60),
    )
    codes = sorted(draw(st.lists(CODES, min_size=1, max_size=60) | dense | even))
    found, most = [[codes[0]]], draw(st.integers(1, 12))
    for code in codes[1:]:
        if code != found[-1][-1] and len(found[-1]) >= most:
            found.append([])
        found[-1].append(code)
    return [np.array(page, dtype=np.int64) for page in found]


def in_an_index(values):
    """As arrays of an index, which lie in a file: others would have kernels of their own."""
    values.flags.writeable = False
    return values


def directory(found):
    """Where pages of codes lie; an offset of 8, since 0 says that a page is not known."""
    start = np.array([page.ctypes.data - 8 for page in found], dtype=np.int64)
    rows = in_an_index(np.array([len(page) for page in found], dtype=np.int32))
    return rows, start, np.full(len(found), 8, dtype=np.int32)


def first_of(found):
    return in_an_index(np.array([page[0] for page in found]))


def is_unique(found):
    codes = np.concatenate(found)
    return len(np.unique(codes)) == len(codes)


def matches(page, code, once):
    positions = np.flatnonzero(page == code).tolist()
    return positions[:1] if once else positions


def pages_of_by_search(first, probes):
    return np.searchsorted(first, probes, side="right").astype(np.int32) - np.int32(1)


@st.composite
def probes_of(draw, found):
    known = st.sampled_from(np.concatenate(found).tolist())
    known |= known.map(lambda code: min(code + 1, 2**63 - 1))
    return np.array(draw(st.lists(known | CODES, max_size=30)), dtype=np.int64)


@pytest.mark.parametrize(
    ("codes", "step"),
    [
        ([5], 1),
        ([5, 6, 7], 1),
        ([-4, 0, 4], 4),
        ([1, 2, 4], 0),
        ([1, 1, 2], 0),
        ([0, 2**31 - 1], 2**31 - 1),
        ([0, 2**31], 0),
        ([-(2**63), 2**63 - 1], 0),
    ],
)
def test_even_steps(codes, step):
    values = np.array(codes, dtype=np.int64)
    assert even_step(values.ctypes.data, len(values)) == step


@settings(profile)
@given(data=st.data())
def test_pages_of_are_what_a_search_finds(data):
    found = data.draw(sorted_pages())
    probes, first = data.draw(probes_of(found)), first_of(found)
    for codes in (first, first[:0]):
        pages = np.empty(len(probes), dtype=np.int32)
        pages_of(probes, codes, pages)
        assert pages.tolist() == pages_of_by_search(codes, probes).tolist()


@settings(profile, max_examples=2 * profile.max_examples)
@given(data=st.data(), once=st.booleans(), room=st.integers(1, 7) | st.just(64))
def test_locate_finds_what_a_search_finds(data, once, room):
    found = data.draw(sorted_pages())
    probes = data.draw(probes_of(found))
    rows, start, offset = directory(found)
    first = first_of(found)
    rule = (is_unique(found), once)
    never = np.array(data.draw(st.lists(st.booleans(), min_size=len(probes), max_size=len(probes))))
    several = data.draw(st.sets(st.integers(0, len(found) - 1), max_size=2))
    known = offset.copy()
    known[list(several)] = -1
    offset[:], steps = 0, np.zeros(len(found), dtype=np.int32)
    pairs, missing, later = [], [], []
    out = [np.empty(room, t) for t in (np.int64, np.int32, np.int64, np.int64)]
    deferred, at = np.empty(len(probes), dtype=np.int64), (0, -1)
    valid = np.where(never, -1, 0).astype(np.int32) if len(probes) else np.empty(0, np.int32)
    while at[0] < len(probes):
        state, page = (*at, 0, 0, 0), 0
        while page >= 0:
            where = (start, offset, steps)
            state, page = look_up(
                probes, valid, (first, rows), where, state, rule, (*out, deferred)
            )
            if page >= 0:
                assert offset[page] == 0
                steps[page] = even_step(start[page] + known[page], int(rows[page]))
                offset[page] = known[page]
        *at, pair_count, absent_count, later_count = state
        assert pair_count + absent_count <= room
        pairs += zip(*(a[:pair_count].tolist() for a in out[:3]), strict=True)
        missing += out[3][:absent_count].tolist()
        later += deferred[:later_count].tolist()
    expected_pairs, expected_missing, expected_later = [], [], []
    for row, (code, page) in enumerate(
        zip(probes, pages_of_by_search(first, probes).tolist(), strict=True)
    ):
        if never[row] or page < 0:
            expected_missing.append(row)
        elif page in several:
            expected_later.append(row)
        else:
            positions = matches(found[page], code, once)
            expected_pairs += [(row, page, position) for position in positions]
            expected_missing += [] if positions else [row]
    assert (pairs, missing, later) == (expected_pairs, expected_missing, expected_later)


@settings(profile, max_examples=2 * profile.max_examples)
@given(data=st.data(), once=st.booleans(), room=st.integers(1, 7), slots=st.sampled_from([1, 2, 8]))
def test_match_run_answers_each_row_that_waits_for_its_pages(data, once, room, slots):
    found = data.draw(sorted_pages())
    first_codes = first_of(found)
    codes = data.draw(probes_of(found))
    codes = codes[codes >= first_codes[0]]
    pages = pages_of_by_search(first_codes, codes)
    gone = data.draw(st.sets(st.integers(0, max(0, len(codes) - 1))))
    state = np.array([GONE if row in gone else WAITING for row in range(len(codes))], np.uint8)
    waiting = [row for row in range(len(codes)) if row not in gone]
    heads, chain = np.full(slots, -1, dtype=np.int32), np.empty(len(codes), dtype=np.int32)
    chain_pages(pages, state, heads, chain, 0)
    counts = np.full(len(found), 99, dtype=np.int32)
    count_waiting(pages, state, counts)
    assert counts.tolist() == [int(np.sum(pages[waiting] == p)) for p in range(len(found))]

    first = data.draw(st.integers(0, len(found) - 1))
    run = found[first : first + data.draw(st.integers(1, 4))]
    numbers, last = np.arange(first, first + len(run)), len(found) - 1
    window = (heads, chain, pages, codes, state)
    out = [np.empty(room, t) for t in (np.int64, np.int32, np.int64, np.int64)]
    cursor, pairs, missing, answered = (0, -1, -2, -1), [], [], 0
    while cursor[0] < len(run):
        pair_count, absent_count, done, cursor = match_run(
            (
                numbers,
                *(each.copy() for each in directory(run)),
                first_codes[numbers],
                first_codes[np.minimum(numbers + 1, last)],
            ),
            window,
            cursor,
            (is_unique(found), once, True, False, GONE),
            tuple(out),
            np.zeros(0, dtype=np.int64),
        )
        assert pair_count + absent_count <= room
        pairs += zip(*(a[:pair_count].tolist() for a in out[:3]), strict=True)
        missing += out[3][:absent_count].tolist()
        answered += done
    mine = [row for row in waiting if first <= pages[row] < first + len(run)]
    expected = {row: matches(found[pages[row]], codes[row], once) for row in mine}
    blocks = {row: int(pages[row]) - first for row in mine}
    assert sorted(pairs) == [(r, blocks[r], p) for r in mine for p in expected[r]]
    assert sorted(missing) == [row for row in mine if not expected[row]]
    assert answered == len(mine)
    assert np.flatnonzero(state == WAITING).tolist() == [r for r in waiting if r not in mine]
    left = np.zeros(len(codes), dtype=bool)  # and the chains hold those that still wait, once each
    for head in heads.tolist():
        while head >= 0:
            assert not left[head]
            left[head] = True
            head = int(chain[head])  # noqa: PLW2901
    assert np.flatnonzero(left).tolist() == np.flatnonzero(state == WAITING).tolist()


def test_an_answer_without_rows_proves_all_rows_absent_that_wait_for_it():
    codes, pages, state = np.array([5, 9]), np.zeros(2, np.int32), np.zeros(2, np.uint8)
    heads, chain = np.full(1, -1, dtype=np.int32), np.empty(2, dtype=np.int32)
    chain_pages(pages, state, heads, chain, 0)
    none = (np.zeros(1, np.int32), np.zeros(1, np.int64), np.zeros(1, np.int32))
    out = [np.empty(4, t) for t in (np.int64, np.int32, np.int64, np.int64)]
    pairs, absent, answered, cursor = match_run(
        (np.zeros(1, np.int64), *none, np.zeros(1, np.int64), np.zeros(1, np.int64)),
        (heads, chain, pages, codes, state),
        (0, -1, -2, -1),
        (False, False, True, False, GONE),
        tuple(out),
        np.zeros(0, dtype=np.int64),
    )
    assert (pairs, answered, cursor[0]) == (0, 2, 1)
    assert sorted(out[3][:absent].tolist()) == [0, 1]
