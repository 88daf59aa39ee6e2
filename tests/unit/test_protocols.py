"""Interfaces with several implementations: masters, and rows that are kept fresh."""

from __future__ import annotations

import inspect

import pytest

import semistream as ss
from semistream.engine.fresh import FreshRows, ProcessRows
from semistream.hotset.rows import HostRows
from semistream.master import FileMaster
from semistream.master.database.master import DatabaseMaster

ONLY_FILES_HAVE = ("index", "manifest", "pages_file", "read", "reader", "load_filter", "verify")


@pytest.mark.parametrize(
    ("interface", "kinds"),
    [(ss.Master, (FileMaster, DatabaseMaster)), (FreshRows, (ProcessRows, HostRows))],
)
def test_an_interface_is_implemented_whole(interface, kinds):
    assert interface.__abstractmethods__
    for kind in kinds:
        assert issubclass(kind, interface)
        assert not kind.__abstractmethods__
        for name in interface.__abstractmethods__:
            declared, own = (inspect.getattr_static(each, name) for each in (interface, kind))
            if not isinstance(declared, property):
                ours, theirs = (list(inspect.signature(f).parameters) for f in (own, declared))
                assert ours == theirs, f"{kind.__name__}.{name}"


def test_a_master_in_a_database_has_nothing_of_files():
    names = {*dir(DatabaseMaster), *DatabaseMaster.__dataclass_fields__}
    assert not names & set(ONLY_FILES_HAVE)
    assert set(ONLY_FILES_HAVE) <= {*dir(FileMaster), *FileMaster.__dataclass_fields__}
