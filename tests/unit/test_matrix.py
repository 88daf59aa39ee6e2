"""The combinations that tests run on: every pair is among them, and they are few."""

from itertools import combinations

import pytest

from support.matrix import pairwise

MOST = {  # of the product, which has 7,296, 81, 240 and 4,096 for the last four
    (3,): 3,
    (1, 1): 1,
    (2, 2, 2): 6,
    (4, 2, 16, 57): 57 * 16,
    (3, 3, 3, 3): 13,
    (5, 4, 3, 2, 2): 20,
    (2,) * 12: 10,
}


def pairs(rows):
    return {(i, row[i], j, row[j]) for row in rows for i, j in combinations(range(len(row)), 2)}


@pytest.mark.parametrize("sizes", MOST, ids=str)
def test_every_pair_occurs_and_rows_are_few(sizes):
    rows = pairwise(*map(range, sizes))
    wanted = {
        (i, a, j, b)
        for i, j in combinations(range(len(sizes)), 2)
        for a in range(sizes[i])
        for b in range(sizes[j])
    }
    assert pairs(rows) == wanted
    assert len(set(rows)) == len(rows)
    assert len(rows) <= MOST[sizes]
    assert rows == pairwise(*map(range, sizes))


def test_values_that_are_free_are_used_evenly():
    rows = pairwise(range(20), range(10), "ab")
    assert len(rows) == 200
    assert 95 <= sum(row[2] == "a" for row in rows) <= 105
