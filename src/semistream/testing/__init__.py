"""Tools to test with: the conformance suite that every algorithm must pass, and its reference.

Needs the extra ``testing``. For an algorithm of your own::

    from semistream.algorithms import Algorithm, register

    @register
    class Mine(Algorithm): ...

    @pytest.mark.parametrize("check", semistream.testing.checks())
    @pytest.mark.parametrize("case", semistream.testing.cases())
    @pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
    def test_mine(check, case, how, tmp_path):
        check("mine", semistream.testing.case(case), how, tmp_path)
"""

from semistream.testing import data_cases, key_cases
from semistream.testing.case import Case, case, cases
from semistream.testing.conformance import (
    Watched,
    check_abandoned_results,
    check_answers,
    check_drains,
    check_least_budget,
    check_same_twice,
    check_ticks,
    checks,
    least_budget,
    start,
)
from semistream.testing.reference import reference_join, same_rows

__all__ = [
    "Case",
    "Watched",
    "case",
    "cases",
    "check_abandoned_results",
    "check_answers",
    "check_drains",
    "check_least_budget",
    "check_same_twice",
    "check_ticks",
    "checks",
    "least_budget",
    "reference_join",
    "same_rows",
    "start",
]

del data_cases, key_cases  # imported to register their cases
