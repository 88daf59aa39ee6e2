"""The demonstration: what it refuses, and what it can do without."""

import sys

import pytest
from typer.testing import CliRunner

from semistream.cli.commands import app
from semistream.cli.demo.command import _picture
from semistream.cli.demo.run import Demo
from semistream.errors import OptionError


def call(*arguments):
    return CliRunner().invoke(app, ["demo", *(str(argument) for argument in arguments)])


def test_a_folder_of_others_is_not_emptied(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    refused = call("--folder", tmp_path)
    assert refused.exit_code == 1
    assert "thesis.tex" in refused.output
    assert "--folder" in refused.output
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_its_own_folder_is_emptied_unless_something_was_put_beside(tmp_path):
    demo = Demo(tmp_path / "new" / "demo", 1000, 1000, 0.5, "mapped")
    demo.prepare()
    (demo.folder / "sales").mkdir()
    (demo.folder / "sales" / "0.parquet").touch()
    demo.prepare()
    assert not (demo.folder / "sales").exists()
    (demo.folder / "notes.txt").touch()
    with pytest.raises(OptionError, match=r"notes\.txt"):
        demo.prepare()
    assert (demo.folder / "notes.txt").exists()


def test_an_empty_folder_is_taken(tmp_path):
    Demo(tmp_path, 1000, 1000, 0.5, "mapped").prepare()
    assert list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("products", "said"), [("many", "products='many' is not a count"), ("0.5k", "at least 1,000")]
)
def test_rows_are_a_count_of_a_thousand_or_more(products, said, tmp_path):
    refused = call("--folder", tmp_path / "demo", "--products", products)
    assert refused.exit_code == 1
    assert said in refused.output
    assert not (tmp_path / "demo").exists()


def test_without_matplotlib_there_is_a_note_instead_of_the_picture(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "pip install 'semistream[figures]'" in _picture([], 1, tmp_path / "run.png")
    assert not (tmp_path / "run.png").exists()
