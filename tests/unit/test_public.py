"""The public surface is what it says it is."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

import semistream as ss
from semistream import errors, master

MOST_MODULES = 70  # what a join needs, and no builder, planner or driver


def test_all_is_complete_and_sorted():
    public = {
        name
        for name in dir(ss)
        if not name.startswith("_")
        and getattr(getattr(ss, name), "__module__", "").startswith("semistream")
    }
    assert ss.__all__ == sorted(public - {"lazy_names"})


@pytest.mark.parametrize("package", [ss, master], ids=lambda package: package.__name__)
def test_names_that_are_imported_on_first_use_are_there(package):
    assert set(package.__all__) <= set(dir(package))
    found = {}
    exec(f"from {package.__name__} import *", found)  # noqa: S102
    assert {name: getattr(package, name) for name in package.__all__}.items() <= found.items()
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nul'"):
        _ = package.nul


def in_a_fresh_process(expression):
    """Return the words of an expression, right after the import."""
    code = f"import sys, semistream; print(*{expression})"
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_an_import_loads_what_a_join_needs_and_no_more():
    loaded = in_a_fresh_process("sys.modules")
    assert not loaded & {"pandas", "pyarrow.dataset", "pyspark"}
    assert len([name for name in loaded if name.split(".")[0] == "semistream"]) < MOST_MODULES


def test_what_tasks_and_commands_import_needs_no_pydantic():
    tasks = ["semistream.spark.lookup.worker", "semistream.pipeline.io.generator"]
    modules = [*tasks, "semistream.spark.enrich.enrichment", "semistream.cli.pipeline"]
    loaded = in_a_fresh_process(f"[__import__(name) for name in {modules}] and sys.modules")
    assert {*modules} <= loaded
    assert "pydantic" not in loaded


def test_no_module_takes_the_place_of_a_name_that_is_imported_on_first_use():
    later = in_a_fresh_process("set(semistream.__all__) - set(vars(semistream))")
    assert later == {"plan", "sync_master"}
    assert not [name for name in later if find_spec(f"semistream.{name}")]


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


def test_a_session_can_be_started_from_an_archive(tmp_path):
    root, archive = Path(ss.__file__).parent, tmp_path / "semistream.zip"
    with ZipFile(archive, "w") as file:
        for path in root.rglob("*"):
            if "__pycache__" not in path.parts:
                file.write(path, path.relative_to(root.parent))
    code = "import semistream.pipeline.run.query as module; print(module.__file__)"
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(archive)!r}); {code}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith(str(archive))
