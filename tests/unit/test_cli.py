"""The command line, as a user types it."""

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream as ss
from semistream.cli.commands import app
from semistream.cli.terminal import BUDGETS, DATA, PIPELINES
from support.cli import call


@pytest.fixture
def products(tmp_path):
    path = tmp_path / "products.parquet"
    pq.write_table(pa.table({"id": [3, 1, 2], "name": ["c", "a", "b"]}), path)
    return path


def test_a_master_is_built_shown_and_verified(products, tmp_path):
    master = tmp_path / "master"
    built = call("master", "build", products, master, "--key", "id")
    assert built.exit_code == 0, built.output
    assert "3 of 14 B" in built.output
    facts = json.loads(call("master", "show", master, "--json").output)
    assert (facts["rows"], facts["key"], facts["pages"]) == (3, ["id"], 1)
    assert "1 pages are as they were written" in call("master", "verify", master).output


def test_an_error_is_a_message_and_an_exit_code(products, tmp_path):
    failed = call("master", "build", products, tmp_path / "m", "--key", "idd")
    assert failed.exit_code == 1
    assert "Did you mean 'id'" in failed.output
    assert "Traceback" not in failed.output
    missing = call("master", "show", tmp_path / "nothing")
    assert missing.exit_code == 1
    assert "no master table is here" in missing.output


def test_a_url_is_no_folder_of_a_master(products, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    url = "s3://KEY:SECRET@bucket/m"
    for words in (
        *(("build", products, url, "--key", "id"), ("show", url), ("verify", url)),
        *(("sync", url), ("snapshots", url), ("clean", url)),
    ):
        refused = call("master", *words)
        assert refused.exit_code == 1
        assert "'s3://bucket/m' is a URL" in refused.output
        assert "SECRET" not in refused.output
    assert call("plan", "--master", url, "--memory", "1MB").exit_code == 1
    assert sorted(tmp_path.iterdir()) == before


def test_algorithms_are_listed():
    assert "moij" in json.loads(call("algorithms", "--json").output)


def test_every_command_is_listed_in_a_group():
    listed = [*app.registered_commands, *app.registered_groups]
    assert {one.rich_help_panel for one in listed} == {PIPELINES, DATA, BUDGETS}
    assert not {"bench", "reproduce"} & {one.name.partition("-")[0] for one in listed}


def test_the_version_is_told():
    assert call("--version").output == f"semistream {ss.__version__}\n"
    assert metadata.version("semistream") == ss.__version__


WITHOUT = """
import sys
from importlib import import_module

package = sys.argv.pop(1)

class Missing:
    @staticmethod
    def find_spec(name, *_):
        if name == package:
            raise ModuleNotFoundError(name=name)

sys.meta_path.insert(0, Missing)
module, _, name = sys.argv.pop(1).partition(":")
getattr(import_module(module), name)()
"""
COMMAND, BENCHMARKS, PAPERS = (
    "semistream.cli:main",
    "benchmarks.__main__:app",
    "papers.__main__:app",
)
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("package", "program", "command", "extra"),
    [
        ("pyspark", COMMAND, "demo", "spark"),
        ("pyspark", BENCHMARKS, "live --url postgresql://nowhere", "spark"),
        ("yaml", PAPERS, "--report-only", "pipeline"),
        ("yaml", COMMAND, "run pipeline.yaml", "pipeline"),
    ],
)
def test_the_extra_that_is_missing_is_named(package, program, command, extra, tmp_path):
    (tmp_path / "pipeline.yaml").touch()
    argv = [sys.executable, "-c", WITHOUT, package, program, *command.split()]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(  # noqa: S603
        argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    [told] = done.stderr.splitlines()
    assert told.endswith(f"needs {package}: pip install 'semistream[{extra}]'")
    assert [path.name for path in tmp_path.iterdir()] == ["pipeline.yaml"]


def test_a_master_follows_its_table(tmp_path, monkeypatch):
    table, master = tmp_path / "table", tmp_path / "master"
    table.mkdir()
    pq.write_table(
        pa.table({"id": [1, 2], "name": ["a", "b"], "more": [0, 0]}), table / "1.parquet"
    )
    columns = ("--column", "id", "--column", "name")
    assert call("master", "build", table, master, "--key", "id", *columns).exit_code == 0
    assert "nothing new, 2 rows" in call("master", "sync", master).output
    pq.write_table(pa.table({"id": [3], "name": ["c"]}), table / "2.parquet")
    facts = json.loads(call("master", "sync", master, "--json").stdout)
    assert (facts["rows"], facts["upserted"], facts["how"]) == (3, 1, "files")
    files = iter(["3.parquet", "", "away", "back", "4.parquet"])

    def wait(_: float) -> None:
        try:
            name = next(files)
        except StopIteration:
            raise KeyboardInterrupt from None
        if name == "away":
            table.rename(tmp_path / "elsewhere")
        elif name == "back":
            (tmp_path / "elsewhere").rename(table)
        elif name:
            pq.write_table(pa.table({"id": [int(name[0])], "name": ["x"]}), table / name)

    monkeypatch.setattr("semistream.cli.master.sleep", wait)
    watched = call("master", "sync", master, "--watch", "30s", "--json")
    assert watched.exit_code == 0
    assert [json.loads(line)["rows"] for line in watched.stdout.splitlines()] == [3, 4, 5]
    assert "does not exist" in watched.stderr
    assert "not a time" in call("master", "sync", master, "--watch", "soon").output
