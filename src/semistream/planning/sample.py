"""A sample of a stream, from files or a Kafka topic: its columns, its keys, their frequencies."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from semistream.errors import OptionError
from semistream.planning.demand import Demand
from semistream.spec import JoinSpec

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt
    from confluent_kafka import Consumer

    from semistream.planning.view import View
    from semistream.spec import On

    Ints = npt.NDArray[np.int64]
    Batches = Iterator[pa.RecordBatch]
    Types = Mapping[str, pa.DataType]

__all__ = ["Sample", "read_sample", "read_stream"]

_ROWS = 1_000_000
_TOPIC = "kafka://"
_WAIT = 10.0  # seconds for a broker, or for a further message of a topic that has not ended
_MORE = 0.2  # seconds for those behind it: a chunk that is not full takes all of them, at the end
_FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv"}
_FORMATS |= dict.fromkeys((".json", ".jsonl", ".ndjson"), "json")
_FORMATS |= dict.fromkeys((".arrow", ".feather", ".ipc"), "arrow")


@dataclass(frozen=True, eq=False)
class Sample:
    """What was seen of a stream."""

    schema: pa.Schema
    rows: int
    keys: int
    """How many different keys came."""
    demand: Demand

    def describe(self) -> str:
        """Return what is known of the stream, in a line."""
        return (
            f"as sampled: {self.rows:,} rows with {self.keys:,} different keys, "
            f"{self.demand.absent:.1%} of them without a match"
        )


def read_sample(source: str | os.PathLike[str], view: View, on: On, seed: int = 0) -> Sample:
    """Read up to a million rows of a stream, and look their keys up in a view of the master."""
    types = dict(zip(view.key, view.keys.types, strict=True))
    names = [on] if isinstance(on, str) else on
    pairs = dict(names) if isinstance(names, Mapping) else {name: name for name in names}
    wanted = {ours: types[theirs] for ours, theirs in pairs.items() if theirs in types}
    schema, rows, codes = None, 0, []
    for batch in read_stream(source, wanted, seed):
        schema = schema or batch.schema
        keys = JoinSpec.resolve(view, batch.schema, on, "semi", None, "").stream_keys
        part = view.keys.encode([batch.column(name) for name in keys])
        codes.append(part.values[part.valid])
        rows += batch.num_rows
        if rows >= _ROWS:
            break
    if schema is None or not rows:
        msg = f"{source} has no rows, so it says nothing of the stream; give a sample that has some"
        raise OptionError(msg)
    distinct, counts = np.unique(np.concatenate(codes), return_counts=True)
    return Sample(schema, rows, len(distinct), _demand(distinct, counts, rows, view))


def _demand(codes: Ints, counts: Ints, rows: int, view: View) -> Demand:
    """Return what keys ask for; those on the view's pages tell how many the master lacks."""
    present = np.sort(view.keys.encode(view.present.columns).values)
    place = np.minimum(np.searchsorted(present, codes), len(present) - 1)
    held = present[place] == codes
    near = view.covers(codes)
    missing = near & ~held
    if not held.any():
        msg = (
            f"none of the {int(counts[near].sum()):,} sampled rows that were looked up has a match "
            f"in {view.path}: check that on= names the right columns, and their types"
        )
        raise OptionError(msg)
    lost = counts[missing].sum() / counts[near].sum() * counts.sum() + rows - counts.sum()
    # Of the keys on other pages as many are taken for absent, which ones is drawn.
    part = missing.sum() / near.sum()
    left_out = missing | ~near & (np.random.default_rng(0).random(len(codes)) < part)
    codes, counts = codes[~left_out], counts[~left_out]
    values = view.statistics.values * view.stride
    return Demand.counted(codes, counts, max(values, len(codes)), min(0.999, float(lost / rows)))


def read_stream(source: str | os.PathLike[str], types: Types, seed: int = 0) -> Batches:
    r"""Return rows of files, a folder of them, or a topic; of files some of each, in random order.

    ``types`` are those of key columns, for CSV and JSON, which have none.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "sales.csv"
    >>> _ = path.write_text("id,amount\n007,3\n")
    >>> next(read_stream(path, {"id": pa.string()})).to_pylist()
    [{'id': '007', 'amount': 3}]
    >>> read_stream("sales.xlsx", {})
    Traceback (most recent call last):
    semistream.errors.OptionError: sales.xlsx cannot be sampled; give ...
    """
    if str(source).startswith(_TOPIC):
        return _topic(str(source), types)
    path = Path(source)
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    files = [file for file in files if file.suffix and not file.name.startswith(("_", "."))]
    kinds = {_FORMATS.get(file.suffix.lower()) for file in files}
    if len(kinds) != 1 or None in kinds:
        msg = (
            f"{source} cannot be sampled; give a file or folder of Parquet, CSV, JSON lines or "
            "Arrow files, or a topic as kafka://host:port/topic"
        )
        raise OptionError(msg)
    return _files(files, kinds.pop() or "", types, seed)


def _files(files: list[Path], kind: str, types: Types, seed: int) -> Batches:
    import pyarrow.dataset as ds  # noqa: PLC0415 - seldom wanted
    from pyarrow import csv  # noqa: PLC0415

    convert = csv.ConvertOptions(column_types=dict(types))
    form = ds.CsvFileFormat(convert_options=convert) if kind == "csv" else kind
    try:
        pieces = [
            piece
            for fragment in ds.dataset([str(file) for file in files], format=form).get_fragments()
            for piece in (fragment.split_by_row_group() if kind == "parquet" else [fragment])
        ]
        most = -(-_ROWS // max(1, len(pieces)))
        for number in np.random.default_rng(seed).permutation(len(pieces)):
            left = most
            for batch in pieces[number].to_batches(batch_size=8192):
                yield batch.slice(0, left)
                left -= batch.num_rows
                if left <= 0:
                    break
    except (pa.ArrowException, OSError) as error:
        msg = f"{files[0]}: the sample cannot be read: {error}"
        raise OptionError(msg) from error


def _topic(address: str, types: Types) -> Batches:
    """Return the rows of a topic of JSON objects, from its earliest message to its end."""
    brokers, _, topic = address.removeprefix(_TOPIC).partition("/")
    if not brokers or not topic or "/" in topic:
        raise OptionError(f"{address} is no topic; give {_TOPIC}host:port/topic")
    try:
        from confluent_kafka import Consumer  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        msg = "reading a Kafka topic needs confluent-kafka: pip install 'semistream[kafka]'"
        raise OptionError(msg) from None
    settings = {"bootstrap.servers": brokers, "group.id": "semistream-sample", "log_level": 0}
    settings |= {"enable.auto.commit": False, "enable.partition.eof": True}
    return _messages(Consumer(settings), topic, types)


def _messages(consumer: Consumer, topic: str, types: Types) -> Batches:
    from confluent_kafka import (  # noqa: PLC0415 - as above
        OFFSET_BEGINNING,
        KafkaError,
        KafkaException,
        TopicPartition,
    )

    try:
        topics = consumer.list_topics(timeout=_WAIT).topics
        if topic not in topics:
            raise OptionError.unknown("topic", topic, topics)
        left = set(topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in left])
        while left:
            messages = consumer.consume(1, timeout=_WAIT)
            if not messages:
                raise OptionError(f"no further message of topic {topic!r} within {_WAIT:g} s")
            messages += consumer.consume(1000, timeout=_MORE)
            for error in (message.error() for message in messages):
                if error and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name
                    raise OptionError(f"topic {topic!r} cannot be read: {error.str()}")
            left -= {message.partition() for message in messages if message.error()}
            yield from _json_rows((m.value() for m in messages if not m.error()), types)
    except KafkaException as error:
        msg = f"no broker for topic {topic!r} within {_WAIT:g} s ({error.args[0]}): is it running?"
        raise OptionError(msg) from error
    except pa.ArrowInvalid as error:
        msg = f"topic {topic!r}: a message is not the JSON that was expected: {error}"
        raise OptionError(msg) from error
    finally:
        consumer.close()


def _json_rows(values: Iterable[bytes | None], types: Types) -> Batches:
    from pyarrow import json  # noqa: PLC0415 - seldom wanted

    content = b"\n".join(value for value in values if value and value.strip())
    if not content:
        return iter(())
    parse = json.ParseOptions(pa.schema(list(types.items())), newlines_in_values=True)
    read = json.ReadOptions(use_threads=False, block_size=len(content) + 1)
    return iter(json.read_json(io.BytesIO(content), read, parse).to_batches())
