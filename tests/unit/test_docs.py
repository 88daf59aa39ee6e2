"""The documentation agrees with the code: signatures, defaults, names, commands, links, records."""

import ast
import importlib
import inspect
import json
import re
import shlex
from dataclasses import MISSING, fields
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import typer
import yaml
from pydantic import TypeAdapter
from typer.testing import CliRunner

import semistream as ss
from semistream.algorithms import choose
from semistream.cli.commands import app
from semistream.master.database.open import open_database
from semistream.pipeline import read_pipeline
from semistream.pipeline.file.columns import Columns
from semistream.pipeline.file.ends import Sink, Source
from semistream.pipeline.file.models import Enrichment, PipelineFile, Waiting

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
API = ROOT / "docs" / "api.md"
PIPELINE = (ROOT / "docs" / "pipeline.md").read_text()
PAGES = [
    README,
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^```[a-z]*\n(.*?)^```$|`([^`\n]+)`", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
INJECTED = {"clock"}  # a parameter for tests, which no page mentions

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
# The changelog also names what is gone.
each_guide = pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: page.name
)


def codes(page):
    """Return the code blocks and code spans of a page."""
    return [block or span for block, span in CODE.findall(page.read_text())]


def slug(heading):
    """Return the anchor that GitHub makes of a heading."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(page):
    return {slug(heading) for heading in HEADING.findall(FENCE.sub("", page.read_text()))}


def section(title):
    """Return a section of the API page."""
    return API.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(text):
    """Return the cells of all tables, without heads and rulers."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rulers = [i for i, line in enumerate(lines) if set(line) <= set("|-: ")]
    kept = [line for i, line in enumerate(lines) if i not in rulers and i + 1 not in rulers]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in kept]


# -- the README -----------------------------------------------------------------------------------


def test_the_readme_is_short():
    text = README.read_text()
    assert len(text.split()) <= 700
    assert len(text.splitlines()) <= 150


# -- links ----------------------------------------------------------------------------------------


@each_page
def test_links_lead_somewhere(page):
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text())):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert not broken


# -- signatures -----------------------------------------------------------------------------------


def documented(text):
    """Return the signature that a section states, as Python reads it."""
    call = re.search(r"```text\nss\.(\w+)\((.*?)\)(?:  #.*)?\n```", text, re.DOTALL)
    arguments = call[2].strip().removesuffix(",")
    read = ast.parse(f"def {call[1]}({arguments}): ...").body[0].args
    kinds = inspect.Parameter
    defaults = [None] * (len(read.args) - len(read.defaults)) + list(read.defaults)
    found = [
        (a.arg, kinds.POSITIONAL_OR_KEYWORD, d) for a, d in zip(read.args, defaults, strict=True)
    ]
    found += [
        (a.arg, kinds.KEYWORD_ONLY, d)
        for a, d in zip(read.kwonlyargs, read.kw_defaults, strict=True)
    ]
    parameters = [
        kinds(name, kind, default=kinds.empty if value is None else ast.literal_eval(value))
        for name, kind, value in found
    ]
    return parameters + ([kinds(read.kwarg.arg, kinds.VAR_KEYWORD)] if read.kwarg else [])


def actual(function):
    parameters = inspect.signature(function).parameters.values()
    return [
        p.replace(annotation=p.empty)
        for p in parameters
        if p.name not in INJECTED and p.name != "self"
    ]


def state_defaults(parameters, lines):
    """Check a table of parameters: a code span is the default, words stand for None."""
    stated = {name.strip("`*"): default for name, default, *_ in lines}
    assert list(stated) == [p.name for p in parameters]
    for parameter in parameters:
        text = stated[parameter.name]
        if not text:
            assert parameter.default is parameter.empty, parameter.name
        elif re.fullmatch(r"`[^`]+`", text):
            assert ast.literal_eval(text.strip("`")) == parameter.default, parameter.name
        else:
            assert parameter.default is None, parameter.name


@pytest.mark.parametrize(
    "name",
    ["enrich", "build_master", "open_master", "sync_master", "Join", "plan", "watch", "split"],
)
def test_signatures_and_defaults_are_documented(name):
    text, parameters = section(name), actual(getattr(ss, name))
    assert documented(text) == parameters
    table = re.search(r"^\| parameter .*?(?=\n\n|\Z)", text, re.MULTILINE | re.DOTALL)[0]
    state_defaults(parameters, rows(table))


def test_every_public_function_is_documented():
    functions = {name for name in ss.__all__ if not name.endswith("Error") and name != "Master"}
    assert functions == {*re.findall(r"^## (\w+)$", API.read_text(), re.MULTILINE)} - {"Errors"} | {
        "algorithms"
    }


def test_the_options_of_a_database_are_documented():
    table = section("open_master").split("Options for a [database]")[1]
    state_defaults(actual(open_database)[1:], rows(table))


# -- options of the algorithms --------------------------------------------------------------------


def test_the_options_of_the_algorithms_are_documented():
    known = importlib.import_module(choose.__module__)
    stated = {}
    for names, text in rows(section("Options of the algorithms")):
        on_database = names.endswith("on a database")
        for name in re.findall(r"`([\w-]+)`", names):
            options = dict(re.findall(r"`(\w+)=([^`]+)`", text))
            stated[name, on_database] = {k: ast.literal_eval(v) for k, v in options.items()}
    assert {name for name, _ in stated} == {*ss.algorithms()}
    for (name, on_database), options in stated.items():
        algorithm = known._find(name, {}, on_database)
        assert options.keys() == algorithm.options, name
        defaults = {
            p.name: p.default
            for kind in algorithm.__mro__
            for method in ("scan", "plan")
            if method in vars(kind)
            for p in inspect.signature(getattr(kind, method)).parameters.values()
            if p.name in options
        }
        assert defaults == options, name


# -- pipeline files -------------------------------------------------------------------------------


def stated_settings(text):
    """Return the settings of a table: a code span is the default, words stand for an empty one."""
    table = re.search(r"^\| setting .*?(?=\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    return {name.strip("`"): default for name, default, _ in rows(table[0] if table else "")}


def check_settings(section, text):
    stated, hints = stated_settings(text), get_type_hints(section, include_extras=True)
    settings = [f for f in fields(section) if f.name != "kind"]
    assert stated.keys() == {f.name for f in settings}
    for f in settings:
        required = f.default is MISSING and f.default_factory is MISSING
        assert stated[f.name].startswith("required") >= required, f.name
        if given := re.fullmatch(r"`([^`]+)`", stated[f.name]):
            value = yaml.safe_load(given[1])
            assert TypeAdapter(hints[f.name]).validate_python(value) == f.default, f.name
        elif not required:
            empty = f.default_factory() if f.default is MISSING else f.default
            assert not empty, f.name


SOURCES, SINKS = (get_args(get_args(ends)[0]) for ends in (Source, Sink))


@pytest.mark.parametrize("kind", [*SOURCES, *SINKS], ids=lambda s: s.__name__)
def test_the_settings_of_sources_and_sinks_are_documented(kind):
    title = "Sources" if kind in SOURCES else "Sinks"
    text = PIPELINE.split(f"### {title}\n")[1].split("\n### ")[0]
    check_settings(kind, text.split(f"**`kind: {kind.kind}`**")[1].split("**`kind:")[0])


@pytest.mark.parametrize(("title", "kind"), [("Enrichments", Enrichment), ("Columns", Columns)])
def test_the_settings_of_a_section_are_documented(title, kind):
    check_settings(kind, PIPELINE.split(f"### {title}\n")[1].split("\n### ")[0])


def test_the_settings_of_waiting_rows_are_documented():
    page = (ROOT / "docs" / "missing.md").read_text()
    check_settings(Waiting, page.split("## Rows that arrive before their master row\n")[1])


def test_the_keys_of_a_file_are_documented():
    table = PIPELINE.split("## The file\n")[1].split("\n\n")[0]
    assert {name.strip("`") for name, *_ in rows(table)} == {
        key.name for key in fields(PipelineFile)
    }


def test_the_json_schema_is_current():
    made = CliRunner().invoke(app, ["check", "--schema"])
    assert made.exit_code == 0
    stored = (ROOT / "docs" / "pipeline.schema.json").read_text()
    assert stored == made.output, "semistream check --schema > docs/pipeline.schema.json"


def test_every_key_of_the_json_schema_is_described():
    schema = json.loads((ROOT / "docs" / "pipeline.schema.json").read_text())
    for section in (schema, *schema["$defs"].values()):
        assert section["description"]
        for name, key in section["properties"].items():
            assert name == "kind" or key["description"], name


@each_page
def test_whole_pipelines_are_right(page, tmp_path, monkeypatch):
    monkeypatch.setenv("KAFKA", "localhost:9092")
    for block in re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        keys = yaml.safe_load(block)
        if {"enrich", "sink"} <= keys.keys():
            source = "" if "source" in keys else "source: {kind: rate}\n"
            (tmp_path / "pipeline.yaml").write_text(source + block)
            read_pipeline(tmp_path / "pipeline.yaml")


# -- names, commands, targets ---------------------------------------------------------------------


@each_guide
def test_dotted_names_exist(page):
    for name in {
        n for code in codes(page) for n in re.findall(r"\bsemistream(?:\.[a-z_]\w*)+", code)
    }:
        if name == "semistream.json":  # a file of a checkpoint
            continue
        assert resolve(name), name


def resolve(name):
    """Tell whether a dotted name is a module, or something in one."""
    module, rest = name, []
    while module:
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            rest.insert(0, last)
            continue
        for part in rest:
            found = getattr(found, part, None)
        return found is not None
    return False


@each_guide
def test_commands_and_their_options_exist(page):
    for code in codes(page):
        for line in code.splitlines():
            if call := re.match(r"(?:\$ )?semistream ([a-z][^#|]*)", line):
                check_command(call[1])


def check_command(line):
    command = typer.main.get_command(app)
    for word in shlex.split(line.replace("…", "")):
        if known := getattr(command, "commands", None):
            assert set(word.split("|")) <= set(known), line
            command = known[word.split("|")[0]]
        elif word.startswith("--"):
            assert word in {o for p in command.params for o in (*p.opts, *p.secondary_opts)}, line


@each_guide
def test_make_targets_exist(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {t for code in codes(page) for t in re.findall(r"(?:^|\$ )make ([a-z-]+)", code)}
    assert named <= targets


@each_guide
def test_paths_exist(page):
    folders = r"(?:src|tests|benchmarks|papers|results|examples|docs)/[\w./-]*\w/?"
    named = {code for code in codes(page) if re.fullmatch(folders, code)}
    named -= {"examples/data"}  # which the examples generate
    assert not [path for path in named if not (ROOT / path).exists()]


def test_environment_variables_are_documented():
    named = re.compile(r"\bSEMISTREAM_[A-Z_]+\b")
    sources = (ROOT / "src").rglob("*.py")
    used = {name for path in sources for name in named.findall(path.read_text())}
    page = (ROOT / "docs" / "operations.md").read_text()
    assert used == set(named.findall(page))


def test_troubleshooting_quotes_messages_of_the_code():
    messages = "\n".join(literals())
    page = (ROOT / "docs" / "operations.md").read_text()
    table = page.split("## Troubleshooting")[1].split("\n## ")[0]
    quoted = [part for first, *_ in rows(table) for part in re.findall(r"`([^`]+)`", first)]
    unknown = [
        fragment
        for message in quoted
        if " " in message and not message.startswith("No module")  # which is Python's
        for fragment in map(str.strip, message.split("…"))
        if fragment.strip(":;,.") not in messages
    ]
    assert len(quoted) > 30
    assert not unknown


def literals():
    """Return the strings of the package; what is put into them is left out."""
    yield from (path.read_text() for path in (ROOT / "src").rglob("*.java"))
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.JoinedStr):
                parts = [v.value if isinstance(v, ast.Constant) else "\0" for v in node.values]
                yield "".join(parts)


# -- records --------------------------------------------------------------------------------------


def test_records_are_dated():
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    stated = rows("| record |" + page.split("| record |")[1].split("\n\n")[0])
    records = {f"`results/{path.name}`" for path in (ROOT / "results").glob("*.json")}
    assert {record for record, *_ in stated} == records
    for record, date, cpu, code in stated:
        machine = json.loads((ROOT / record.strip("`")).read_text())["machine"]
        assert date == machine["date"][:10], record
        assert cpu in machine["cpu"].replace("(R)", ""), record
        assert code == machine.get("source", "not recorded"), record
