"""The rows of a batch, stored before they are split.

::

    folder/.data/<id>/      the rows, as Parquet
    folder/<name>           {"data": <id>, "files": {<name>: <size>, …}}, written once

Where a master has no snapshots, as a database, a replayed batch may find rows that it lacked at
first: what was written to one table would not fit what is written to the other. So the answers are
kept until both tables have them. The small file decides: the first writer wins, and a driver that
was thought dead and comes back reads what the other one stored. No folder is renamed, which object
stores do file by file, and sizes tell whether a power cut took some of the rows.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from semistream.pipeline.checkpoint.write_once import files_in
from semistream.spark.storage import StorageError, delete, delete_old, file_sizes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["store_batch"]

_DATA = ".data"


def store_batch(batch: DataFrame, folder: str, name: str) -> DataFrame:
    """Return a batch as it was when it was first computed; delete the batches before it.

    ``name`` begins with the batch's number, and is the same in a replay.

    Raises
    ------
    StorageError
        Another driver has gone on to a later batch, or stored rows are gone.
    """
    spark, files = batch.sparkSession, files_in(folder, batch.sparkSession)
    text = files.read(name) or files.write_first(name, _write(batch, folder))
    numbers = {other: int(other.partition("-")[0]) for other in files.names()}
    if max(numbers.values()) > numbers[name]:
        msg = f"{folder}: another driver has gone on to a batch behind {name}; this one must end"
        raise StorageError(msg)
    data = _check_rows(spark, folder, name, text)
    for old in (other for other, number in numbers.items() if number < numbers[name]):
        delete(spark, f"{folder}/{_DATA}/{_parse(files.read(old)).get('data', old)}")
        files.remove(old)
    delete_old(spark, f"{folder}/{_DATA}", keep=data.rpartition("/")[2])
    return spark.read.schema(batch.schema).parquet(data)


def _write(batch: DataFrame, folder: str) -> str:
    """Write rows to a place of their own; return the text that would make them the batch."""
    place = uuid4().hex
    data = f"{folder}/{_DATA}/{place}"
    batch.write.parquet(data)
    return json.dumps({"data": place, "files": file_sizes(batch.sparkSession, data)})


def _check_rows(spark: SparkSession, folder: str, name: str, text: str) -> str:
    """Return where the rows of a batch are, if they are all there."""
    content = _parse(text)
    data = f"{folder}/{_DATA}/{content.get('data')}"
    if content and file_sizes(spark, data) == content.get("files"):
        return data
    msg = (
        f"{data}: rows that were written down for the batch {name} are gone or damaged, as after a "
        "power cut. Bring them back from a backup. Or, if the sink has no rows of this batch, or "
        f"you have settled them by hand, remove {folder}/{name} and start again: the batch is then "
        "computed anew."
    )
    raise StorageError(msg)


def _parse(text: str | None) -> Mapping[str, Any]:
    try:
        content = json.loads(text or "")
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
