"""Pipeline files: what is read, and that every mistake is told at once with its line."""

import json
import re
from dataclasses import fields
from inspect import Parameter, getdoc, signature
from operator import attrgetter
from pathlib import Path
from textwrap import dedent

import pyarrow as pa
import pytest
from pydantic import TypeAdapter

import semistream as ss
from semistream.master.files.reader import READ
from semistream.options import PARTITION, TRANSFER, EnrichOptions
from semistream.pipeline import PipelineError, read_pipeline
from semistream.pipeline.file.check import Surroundings, check
from semistream.pipeline.file.columns import Columns, arrange
from semistream.pipeline.file.describe import as_dict, as_text
from semistream.pipeline.file.models import Enrichment
from semistream.pipeline.io.sales import BLOCK, Sales
from semistream.spec import HOW
from semistream.units import parse_bytes
from semistream.workloads import Stream, Zipf

WHOLE = """\
name: sales
source: {kind: generator, keys: 2M, rows_per_batch: 10k}
enrich:
  - master: products
    on: key
    how: left
    memory: 64MB
columns:
  replace: {key: surrogate}
sink:
  kind: parquet
  path: warehouse/sales
trigger: 10 seconds
"""
SALES = pa.schema([("key", pa.int64()), ("sale", pa.int64()), ("quantity", pa.int32())])


@pytest.fixture
def file(tmp_path):
    """Write a pipeline file; give its path."""

    def write(text):
        path = tmp_path / "pipeline.yaml"
        path.write_text(dedent(text))
        return path

    return write


def mistakes(path, environment=None):
    """Give the mistakes as ``line:column: message``."""
    with pytest.raises(PipelineError) as raised:
        read_pipeline(path, environment or {})
    lines = str(raised.value).splitlines()
    assert all(line.startswith(f"{path}:") for line in lines)
    return [line.removeprefix(f"{path}:") for line in lines]


def test_a_file_is_read(file, tmp_path):
    pipeline = read_pipeline(file(WHOLE))
    assert (pipeline.name, pipeline.trigger) == ("sales", "10 seconds")
    assert (pipeline.source.kind, pipeline.source.keys) == ("generator", 2_000_000)
    [step] = pipeline.enrich
    assert (step.on, step.how, step.memory) == (("key",), "left", 64 << 20)
    assert (step.name, step.master) == ("products", str(tmp_path / "products"))
    assert pipeline.sink.path == str(tmp_path / "warehouse/sales")
    assert pipeline.checkpoint == str(tmp_path / "warehouse/sales.checkpoint")


def says(told, wanted):
    """Whether a message has these parts, in any order; … stands between them."""
    return all(part.strip() in told for part in wanted.split("…"))


EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=attrgetter("name"))
def test_the_examples_have_no_mistakes(path):
    assert read_pipeline(path, {"PGPASSWORD": "x"}).enrich


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("10s", "10 seconds"),
        ("500 ms", "500 milliseconds"),
        ("5m", "5 minutes"),
        ("5min", "5 minutes"),
        ("1 hour", "1 hours"),
        ("2 Days", "2 days"),
        ("available_now", "available now"),
    ],
)
def test_a_trigger_is_written_short_or_long(file, given, read):
    assert read_pipeline(file(WHOLE.replace("10 seconds", given))).trigger == read


@pytest.mark.parametrize("given", ["10", "10 ss", "s", "1.5s"])
def test_a_trigger_that_is_not_understood_is_told(file, given):
    [found] = mistakes(file(WHOLE.replace("10 seconds", given)))
    assert "give an interval such as 10s or '10 seconds'" in found


MISTAKES = {
    "algorithm: meshjion": "4:24: enrich[0].algorithm 'meshjion' is not known; choose one of: "
    "adaptive, cachejoin, … Did you mean 'meshjoin'?",
    "how: lft": "how 'lft' is not known; choose one of: anti, inner, left, semi. … 'left'?",
    "memroy: 1MB": "4:13: enrich[0]: key 'memroy' is not known; … Did you mean 'memory'?",
    "memory: 64XB": "enrich[0].memory must be a size in bytes, such as 64MB, not '64XB'",
    "memory: true": "enrich[0].memory must be a size in bytes, such as 64MB, not true",
    "select: {a: b}": "enrich[0].select must be text, not a mapping",
    "select: [a, 1]": "4:25: enrich[0].select[1] must be text, not 1; … write it in quotes",
    "select: [a, b, a]": "select names 'a' twice",
    "localize: yes": "localize must be true, false or a size as 50GB, not 'yes'",
    "read: maped": "Did you mean 'mapped'?",
    "options: 3": "options must be a mapping",
    "how: semi, prefix: x_": "prefix has no use with how: semi",
    "on: k": "4:13: enrich[0].on is given twice, first in line 4",
}


@pytest.mark.parametrize("setting", MISTAKES)
def test_a_mistake_in_an_enrichment(file, setting):
    ends = "source: {kind: rate}\nsink: {kind: noop}"
    [found] = mistakes(file(f"{ends}\nenrich:\n  - {{on: k, {setting}, master: m}}"))
    assert says(found, MISTAKES[setting])


SOURCES = {
    "kind: fils": "1:16: source.kind 'fils' is not known; … Did you mean 'files'?",
    "path: x": "1:1: source.kind is missing; choose one of: files, generator, kafka, rate",
    "kind: files": "1:1: source.path is missing",
    "kind: files, path: x, format: csv": "1:40: source.format 'csv' needs a schema",
    "kind: files, path: x, schema: {a: lng}": "1:44: source.schema.a 'lng' is not … 'long'?",
    "kind: kafka, servers: s, topic: t": "source.schema is missing: JSON needs it",
    "kind: kafka, servers: s, topic: t, format: raw, metadata: [offst]": "source.metadata[0] "
    "'offst' is not known; … Did you mean 'offset'?",
    "kind: kafka, servers: s, topic: t, format: raw, starting_offsets: begin": "'begin' is not",
    "kind: generator, keys: many": "keys must be a whole number of at least 1",
    "kind: generator, keys: 5, row_bytes: 3": "row_bytes=3 is not possible",
    "kind: generator, keys: 5, absent: 2": "absent must be from 0 to 1, not 2",
}
SINKS = {
    "kind: parqet, path: x": "2:14: sink.kind 'parqet' is not known; … Did you mean 'parquet'?",
    "kind: console, rows: 0": "sink.rows must be a whole number",
    "kind: postgresql, table: t, url: mysql://h/d": "url must be as postgresql:",
    "kind: postgresql, table: t, url: 'postgresql://u:secret@h/d'": "sink.url holds a password",
    "kind: postgresql, table: t, url: 'postgresql://h/d?password=secret'": "holds a password",
    "kind: postgresql, table: t, url: 'jdbc:postgresql://h/d?sslpassword=x'": "holds a password",
    "kind: postgresql, table: t, url: 'postgresql://h/d', options: {isolationLevel: NONE}": (
        "sink.options isolationLevel: NONE would commit a part of a task's rows"
    ),
}


@pytest.mark.parametrize("source", SOURCES)
def test_a_mistake_in_the_source(file, source):
    [found] = mistakes(file(f"source: {{{source}}}\nsink: {{kind: noop}}\n"))
    assert says(found, SOURCES[source])


@pytest.mark.parametrize("sink", SINKS)
def test_a_mistake_in_the_sink(file, sink):
    [found] = mistakes(file(f"source: {{kind: rate}}\nsink: {{{sink}}}\n"))
    assert says(found, SINKS[sink])
    assert "secret" not in found


def test_the_secret_of_an_object_store_is_refused_or_not_shown(file, products):
    uri = "s3a://KEY:SECRET@bucket/sales"
    [found] = mistakes(file(WHOLE.replace("master: products", f"master: {uri}")))
    assert says(found, "4:13: enrich[0].master holds a secret, which plans and messages would show")
    pipeline = read_pipeline(file(WHOLE.replace("warehouse/sales", uri)))
    flow = check(pipeline, SALES, Surroundings(tasks=2))
    for told in (as_text(pipeline, flow), json.dumps(as_dict(pipeline, flow))):
        assert "s3a://bucket/sales.checkpoint" in told
        assert "SECRET" not in told


def test_every_mistake_is_told_at_once(file):
    found = mistakes(
        file("""\
        nam: x
        source:
          kind: files
          fromat: json
        enrich:
          - how: outer
            memory: lots
          - {master: m, on: [], name: a}
        columns: {drop: [a], keep: [b]}
        trigger: 10 secnds
        sink: {kind: kafka, servers: "${NOPE}", topic: t}
        checkpoint: 7
        spark: [a]
        """)
    )
    assert [line.split(": ")[0] for line in found] == [
        *("1:1", "2:1", "4:3", "6:5", "6:5", "6:10", "7:13", "8:21", "9:17", "10:10", "11:30"),
        *("12:13", "13:8"),
    ]
    assert "Did you mean 'name'" in found[0]
    assert "environment variable NOPE, which is not set" in found[-3]


SYNTAX = [
    ("source: {kind: rate", "1:20: this is not YAML: expected ',' or '}'"),
    ("source:\n\tkind: rate", "2:1: this is not YAML: .*indent with spaces"),
    ("a: {b: ${C}}", "1:9: this is not YAML: .*write '.*' in quotes"),
    ("a: b: c", "1:5: this is not YAML: mapping values"),
    ("", "1:1: the file is empty"),
    ("- a", "1:1: the file must be a mapping with source, sink, name"),
    ("source: &a [*a]\nsink: {kind: noop}", r"1:13: the alias \*a is not allowed"),
    ("name: &a x\nsource: *a", r"2:9: the alias \*a is not allowed; write the value out"),
    ("a: \x00", "1:1: the file is not text"),
]


OPTIONS = {option.name: option for option in fields(EnrichOptions)}


def test_enrich_has_the_options_of_an_enrichment_as_arguments_with_their_defaults():
    arguments = dict(signature(ss.enrich).parameters)
    for other in ("df", "master"):
        del arguments[other]
    assert arguments.keys() == OPTIONS.keys()
    for name, argument in arguments.items():
        if argument.default is not Parameter.empty:
            default = parse_bytes(argument.default) if name == "memory" else argument.default
            assert (OPTIONS[name].default or None) == (default or None), name
    assert arguments["on"].default is Parameter.empty
    assert arguments["options"].kind is Parameter.VAR_KEYWORD


def test_enrich_describes_its_arguments_as_the_options_do():
    described = re.split(r"\n    (\*{0,2}\w+)\n        ", getdoc(ss.enrich).replace("\n", "\n    "))
    texts = dict(zip((name.lstrip("*") for name in described[1::2]), described[2::2], strict=True))
    for name, option in TypeAdapter(EnrichOptions).json_schema()["properties"].items():
        text = " ".join(texts[name].split("\n    \n")[0].split())
        assert text == " ".join(option["description"].split()), name


def test_a_file_has_the_options_of_an_enrichment_as_keys_with_their_defaults(file):
    assert OPTIONS.keys() <= {key.name for key in fields(Enrichment)}
    path = file("source: {kind: rate}\nsink: {kind: noop}\nenrich: {master: m, on: a, name: b}")
    [step] = read_pipeline(path).enrich
    assert step.enrich_options == EnrichOptions(on=("a",), name="b")


WORDS = {"how": HOW.values(), "partition": PARTITION, "transfer": TRANSFER, "read": READ}


@pytest.mark.parametrize("name", WORDS)
def test_a_file_takes_every_word_that_enrich_takes(file, name):
    for word in WORDS[name]:
        step = f"enrich: {{master: m, on: a, {name}: {word}}}"
        path = file(f"source: {{kind: rate}}\nsink: {{kind: noop}}\n{step}")
        assert getattr(read_pipeline(path).enrich[0], name) == word


def test_what_is_too_deep_or_too_long_for_python_is_told_with_its_line(file):
    deep = "this is nested deeper than 20 levels"
    assert mistakes(file("source:\n  " + "[" * 5_000)) == [f"2:22: {deep}"]
    assert mistakes(file("sink: " + "{a: " * 5_000)) == [f"1:80: {deep}"]
    assert mistakes(file("source:\n" + "".join(" " * i + "- \n" for i in range(5_000)))) == [
        f"21:20: {deep}"
    ]
    long = mistakes(file(f"source: {{kind: rate}}\nsink: {{kind: noop}}\ntrigger: {'9' * 5_000}"))
    assert re.match("3:10: trigger '9+' is not known", long[0])


def test_aliases_that_stand_for_billions_of_values_are_refused_at_once(file):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    assert mistakes(file("\n".join(lines)))[0].startswith("2:10: the alias *a0 is not allowed")


@pytest.mark.parametrize(("text", "message"), SYNTAX)
def test_what_is_not_yaml_is_told_with_its_line(file, text, message):
    assert any(re.match(message, line) for line in mistakes(file(text)))


def test_no_file_is_an_error_of_ours(tmp_path):
    with pytest.raises(ss.SemistreamError, match="can't be read"):
        read_pipeline(tmp_path / "none.yaml")


def test_variables_of_the_environment(file):
    url, braces = "postgresql://${H:-db}/x", "table: '$${t}', password: '${P}'"
    sink = f"sink: {{kind: postgresql, url: '{url}', {braces}}}"
    path = file(f"source:\n  kind: rate\n  rows_per_second: ${{RATE}}\n{sink}\n")
    pipeline = read_pipeline(path, {"RATE": "50", "P": "tiger"})
    assert (pipeline.source.rows_per_second, pipeline.sink.password) == (50, "tiger")
    assert (pipeline.sink.url, pipeline.sink.table) == ("postgresql://db/x", "${t}")
    assert "tiger" not in repr(pipeline)
    told = mistakes(path, {"RATE": "tiger", "P": "tiger"})
    assert told == ["3:20: source.rows_per_second must be a whole number of at least 1, such as "
                    "1000 or 2M, not '${RATE}'"]  # fmt: skip


def test_an_enrichment_is_named_after_its_master(file):
    step = "{master: a/airports, on: k}"
    pipeline = read_pipeline(
        file(f"source: {{kind: rate}}\nsink: {{kind: noop}}\nenrich: [{step}, {step}]")
    )
    assert [step.name for step in pipeline.enrich] == ["airports", "airports_2"]


def test_records_to_kafka_carry_their_origin(file):
    source = "source: {kind: kafka, servers: s, topic: t, schema: 'a long'}"
    for sink, metadata in (
        ("kafka, servers: s, topic: u", ("topic", "partition", "offset")),
        ("noop", ()),
    ):
        read = read_pipeline(file(f"{source}\nsink: {{kind: {sink}}}"))
        assert read.source.metadata == metadata


@pytest.fixture
def products(tmp_path):
    table = pa.table(
        {
            "key": pa.array([1, 2], pa.int64()),
            "surrogate": pa.array([10, 20], pa.int64()),
            "vendor": pa.array([7, 8], pa.int32()),
        }
    )
    return ss.build_master(table, tmp_path / "products", key="key")


def test_columns_and_types_flow_to_the_sink(file, products):
    pipeline = read_pipeline(file(WHOLE))
    flow = check(pipeline, SALES, Surroundings(tasks=2))
    assert flow.output.names == ["surrogate", "sale", "quantity", "vendor"]
    assert flow.output.field("surrogate").type == pa.int64()
    told = as_dict(pipeline, flow)
    plan = told["enrich"][0]["plan"]
    assert (plan["memory"], plan["tasks"]) == (64 << 20, 2)
    assert "key replaced by surrogate" in as_text(pipeline, flow)
    assert "adaptive within 64 MB" in as_text(pipeline, flow)


def wrong(path, schema=SALES, tasks=1):
    with pytest.raises(PipelineError) as raised:
        check(read_pipeline(path), schema, Surroundings(tasks))
    return [line.removeprefix(f"{path}:") for line in str(raised.value).splitlines()]


def test_every_mistake_against_the_schemas_is_told_at_once(file, products, tmp_path):
    vendors = pa.table({"vendor": ["a"], "name": ["b"], "sale": [1]})
    ss.build_master(vendors, tmp_path / "vendors", key="vendor")
    found = wrong(
        file("""\
        source: {kind: rate}
        enrich:
          - {master: products, on: kye}
          - {master: products, on: key, select: [surogate], prefix: again_}
          - {master: vendors, on: vendor}
          - {master: vendors, on: {quantity: vendor}}
        columns:
          rename: {pric: price, sale: quantity}
          drop: [vendr]
        sink: {kind: parquet, path: x, partition_by: [sal]}
        """)
    )
    wanted = [
        r"3:28: enrich\[0\].on: the stream has no column 'kye'.*Did you mean 'key'",
        r"4:61: enrich\[1\].prefix: the master has no column 'surogate'.*Did you mean 'surrogate'",
        r"5:27: enrich\[2\].on: .*vendor.*int32.*string",
        r"6:27: enrich\[3\].on: .*quantity",
        r"8:18: columns.rename.pric: the enriched stream has no column 'pric'",
        r"8:31: columns.rename.sale gives a second column 'quantity'",
        r"9:10: columns.drop\[0\]: the enriched stream has no column 'vendr'",
        r"10:47: sink.partition_by\[0\]: the result has no column 'sal'",
    ]
    assert len(found) == len(wanted), found
    for line, pattern in zip(found, wanted, strict=True):
        assert re.search(pattern, line), (pattern, line)


def test_a_master_that_is_not_there_and_a_budget_that_is_too_small(file, products):
    text = (
        "source: {{kind: rate}}\nsink: {{kind: noop}}\nenrich: {{master: {}, on: key, memory: {}}}"
    )
    [missing] = wrong(file(text.format("nothing", "1MB")))
    assert says(missing, "3:18: enrich[0].master: … no master table is here")
    [small] = wrong(file(text.format("products", "4KB")), tasks=2)
    assert says(small, "enrich[0].memory: memory=4,096 bytes … the least that works is")
    [option] = wrong(file(text.format("products", "1MB, options: {window: 3}")))
    assert "'window' is not an option of adaptive" in option


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ("__Semistream_time", "enrich has a column '__Semistream_time': names that begin"),
        ("_Reason", "quarantine adds a column '_Reason', which there is; rename that"),
        ("semistream_row", "sink numbers rows in a column 'semistream_row', which there is"),
    ],
)
def test_a_column_that_the_pipeline_would_overwrite_is_refused(file, products, column, told):
    [found] = wrong(
        file("""\
        source: {kind: rate}
        sink: {kind: postgresql, url: "postgresql://h/d", table: t, user: u, password: "${SHOP:-x}"}
        enrich: {master: products, on: key, how: left, on_missing: quarantine}
        quarantine: {path: q}
        checkpoint: c
        """),
        SALES.append(pa.field(column, pa.int64())),
    )
    assert told in found


ARRANGED = [
    (Columns(), "a b c", "a b c"),
    (Columns(replace={"a": "c"}), "a b c", "c b"),
    (Columns(drop=("b",), rename={"c": "d"}), "a b c", "a c→d"),
    (Columns(keep=("c", "a")), "a b c", "c a"),
    (Columns(rename={"a": "b", "b": "a"}), "a b", "a→b b→a"),
]


@pytest.mark.parametrize(("columns", "names", "wanted"), ARRANGED)
def test_columns_are_arranged(columns, names, wanted):
    pairs = arrange(columns, names.split())
    assert " ".join(old if old == new else f"{old}→{new}" for old, new in pairs) == wanted


def test_sales_are_a_function_of_the_row_number():
    sales = Sales(Stream(Zipf(1000), seed=3, absent=0.1, row_bytes=24))
    whole = pa.Table.from_batches(sales.rows(0, 2 * BLOCK + 10))
    assert whole["sale"].to_pylist() == list(range(2 * BLOCK + 10))
    for start, end in ((0, 1), (BLOCK - 5, BLOCK + 5), (2 * BLOCK, 2 * BLOCK + 10)):
        part = pa.Table.from_batches(sales.rows(start, end))
        assert part.equals(whole.slice(start, end - start))
    first, second = whole["key"][:BLOCK], whole["key"][BLOCK : 2 * BLOCK]
    assert first != second


def test_a_name_that_was_given_stays_and_others_go_round_it(file):
    path = file(
        "source: {kind: rate}\nsink: {kind: noop}\nenrich:\n"
        "  - {master: p, on: a}\n  - {master: q, on: a, name: p}\n"
    )
    assert [step.name for step in read_pipeline(path).enrich] == ["p_2", "p"]


@pytest.mark.parametrize("name", ["s3://bucket/sales", "file:/data/sales"])
def test_a_pipeline_named_by_a_url_has_its_checkpoint_there(file, name):
    path = file(
        f"name: '{name}'\nsource: {{kind: rate}}\nsink: {{kind: noop}}\n"
        "enrich: {master: p, on: a}\n"
    )
    assert read_pipeline(path).checkpoint == f"{name}.checkpoint"
