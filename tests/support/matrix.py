"""Which combinations of values a test runs on: few that have every pair, or all of them."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Collection

ALL = False
"""Whether every combination is run; ``pytest --all`` sets it before tests are collected."""


def matrix(**dimensions: Collection[Any]) -> pytest.MarkDecorator:
    """Parametrize a test by these arguments: pairwise, and with ``--all`` by their product.

    The values of a dimension that is a mapping are its values, and its keys name the tests.
    """
    keys = [list(values) for values in dimensions.values()]
    rows = product(*keys) if ALL else pairwise(*keys)
    named = {"-".join(str(getattr(v, "__name__", v)) for v in row): row for row in rows}
    values = [
        [
            of[key] if hasattr(of, "keys") else key
            for of, key in zip(dimensions.values(), row, strict=True)
        ]
        for row in named.values()
    ]
    return pytest.mark.parametrize(list(dimensions), values, ids=named)


def pairwise(*dimensions: Collection[Any]) -> list[tuple[Any, ...]]:
    """Return few combinations in which every pair of values of two dimensions occurs.

    One dimension after another, the largest first, is added to the combinations so far, each time
    with the value that makes most new pairs; combinations for the pairs that are left come last.
    The same dimensions always give the same combinations.

    >>> pairwise("abc", "xy", "1")[:3]
    [('a', 'x', '1'), ('b', 'y', '1'), ('c', 'x', '1')]
    """
    order = sorted(range(len(dimensions)), key=lambda d: -len(dimensions[d]))
    values = [list(dimensions[d]) for d in order]
    rows: list[list[int]] = [[number] for number in range(len(values[0]))]
    for column in range(1, len(values)):
        _widen(rows, column, [len(each) for each in values])
    back = [order.index(d) for d in range(len(order))]
    return [tuple(values[d][row[d]] for d in back) for row in rows]


def _widen(rows: list[list[int]], column: int, sizes: list[int]) -> None:
    """Add a column, and the rows that pairs with it need."""
    missing = {
        (d, a, b) for d in range(column) for a in range(sizes[d]) for b in range(sizes[column])
    }
    uses = Counter[int]()
    for row in rows:
        pairs = {b: {(d, a, b) for d, a in enumerate(row)} & missing for b in range(sizes[column])}
        best = max(pairs, key=lambda b: (len(pairs[b]), -uses[b]))  # evenly, where any would do
        missing -= pairs[best]
        uses[best] += 1
        row.append(best)
    for pair in sorted(missing, key=lambda pair: (pair[2], pair)):
        if pair in missing:
            rows.append(_row_with(pair, missing, sizes[:column], len(rows)))
            missing -= {(d, a, pair[2]) for d, a in enumerate(rows[-1][:-1])}


def _row_with(
    pair: tuple[int, int, int], missing: set[tuple[int, int, int]], sizes: list[int], number: int
) -> list[int]:
    """Return a row with this pair and, where there are any, others that are missing."""
    column, value, last = pair
    row = [
        next((a for a in range(size) if (d, a, last) in missing), number % size)
        for d, size in enumerate(sizes)
    ]
    row[column] = value
    return [*row, last]
