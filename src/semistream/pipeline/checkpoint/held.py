"""A batch that is written down before it is parted.

::

    folder/.data/<id>/      the rows, as Parquet
    folder/<name>           {"data": <id>, "files": {<name>: <size>, …}}, made once

Where a master has no snapshots, as a database, a replayed batch may find rows that it lacked at
first: what was written to one table would not fit what is written to the other. So what was found
is kept until both have it. The note decides: whoever writes it first, and a driver that was thought
dead and comes back reads what the other one wrote down. No folder is renamed, which object stores
do file by file, and sizes tell whether a power cut took some of the rows.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from semistream.pipeline.checkpoint.notes import notes_in
from semistream.spark.storage import StorageError, forget, sizes, sweep

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["held"]

_DATA = ".data"


def held(batch: DataFrame, folder: str, name: str) -> DataFrame:
    """Return a batch as it was when it was first computed; those before it are forgotten.

    Parameters
    ----------
    batch
        What is computed now, if it is not there yet.
    folder
        Where batches are kept.
    name
        The batch's, beginning with its number; a replay has the same.

    Raises
    ------
    StorageError
        Another driver has gone on to a later batch, or rows that were written down are gone.
    """
    spark, notes = batch.sparkSession, notes_in(folder, batch.sparkSession)
    text = notes.read(name) or notes.write_first(name, _write_down(batch, folder))
    numbers = {other: int(other.partition("-")[0]) for other in notes.names()}
    if max(numbers.values()) > numbers[name]:
        msg = f"{folder}: another driver has gone on to a batch behind {name}; this one must end"
        raise StorageError(msg)
    data = _checked(spark, folder, name, text)
    for old in (other for other, number in numbers.items() if number < numbers[name]):
        forget(spark, f"{folder}/{_DATA}/{_parsed(notes.read(old)).get('data', old)}")
        notes.remove(old)
    sweep(spark, f"{folder}/{_DATA}", keep=data.rpartition("/")[2])
    return spark.read.schema(batch.schema).parquet(data)


def _write_down(batch: DataFrame, folder: str) -> str:
    """Write rows to a place of their own; return the note that would make them the batch."""
    place = uuid4().hex
    data = f"{folder}/{_DATA}/{place}"
    batch.write.parquet(data)
    return json.dumps({"data": place, "files": sizes(batch.sparkSession, data)})


def _checked(spark: SparkSession, folder: str, name: str, text: str) -> str:
    """Return where the rows of a note are, if they are all there."""
    note = _parsed(text)
    data = f"{folder}/{_DATA}/{note.get('data')}"
    if note and sizes(spark, data) == note.get("files"):
        return data
    msg = (
        f"{data}: rows that were written down for the batch {name} are gone or damaged, as after a "
        "power cut. Bring them back from a backup. Or, if the sink has no rows of this batch, or "
        f"you have settled them by hand, remove {folder}/{name} and start again: the batch is then "
        "computed anew."
    )
    raise StorageError(msg)


def _parsed(text: str | None) -> Mapping[str, Any]:
    try:
        note = json.loads(text or "")
    except ValueError:
        return {}
    return note if isinstance(note, dict) else {}
