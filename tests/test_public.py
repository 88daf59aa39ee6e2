"""The public surface is what it says it is."""

import semistream as ss
from semistream import errors


def test_all_is_complete_and_sorted():
    public = sorted(
        name
        for name, value in vars(ss).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("semistream")
    )
    assert ss.__all__ == public


def test_every_public_name_has_a_docstring():
    assert all(getattr(ss, name).__doc__ for name in ss.__all__)


def test_every_error_has_one_root():
    kinds = [getattr(errors, name) for name in errors.__all__]
    assert all(issubclass(kind, ss.SemistreamError) for kind in kinds)


def test_algorithms_name_their_papers():
    assert set(ss.algorithms()) == {
        "inlj",
        "meshjoin",
        "r-meshjoin",
        "partition-join",
        "ssij",
        "derakhshan",
        "hybridjoin",
        "x-hybridjoin",
        "optimised-x-hybridjoin",
        "tuned-x-hybridjoin",
        "cachejoin",
        "pcsrj",
        "moij",
        "ssbj",
        "adaptive",
    }
    assert all(len(paper) > 20 for paper in ss.algorithms().values())
