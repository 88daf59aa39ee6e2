"""The names that the examples of this package take as known."""

import pytest

from papers.equations import Costs, Read, Sizes


@pytest.fixture(autouse=True)
def symbols(doctest_namespace: dict[str, object]) -> None:
    """Let every example use the symbols."""
    doctest_namespace |= {"Sizes": Sizes, "Costs": Costs, "Read": Read}
