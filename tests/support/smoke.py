"""One enrichment of everything, on whatever Spark is installed; ``--remote`` for Spark Connect.

Run by hand or by ``make smoke``: ``python tests/support/smoke.py [--remote]``.
"""

from __future__ import annotations

import sys
import tempfile
from itertools import product
from pathlib import Path

import pyspark

import semistream as ss
from semistream.spark.cluster.session import session


def main() -> None:
    """Build a master from a DataFrame, enrich a stream from it, compare with Spark's own join."""
    folder = Path(tempfile.mkdtemp())
    spark = session("smoke", master="local[2]" if "--remote" not in sys.argv else None)
    ids = spark.range(20_000)
    products = ids.selectExpr("id * 3 AS product_id", "id AS surrogate", "concat('p', id) AS name")
    master = ss.build_master(products, folder / "products", key="product_id")
    ids.selectExpr("id AS sale", "hash(id) % 60000 AS product_id").write.parquet(f"{folder}/sales")
    stream = spark.readStream.schema("sale long, product_id int").parquet(f"{folder}/sales")
    ways = ["auto"] if "--remote" in sys.argv else ["none", "rows"]
    for how, transfer in product(("left", "inner", "semi", "anti"), ways):
        out = ss.enrich(stream, master, on="product_id", how=how, memory="8MB", transfer=transfer)
        query = (
            out.writeStream.trigger(availableNow=True)
            .option("checkpointLocation", f"{folder}/checkpoint-{how}-{transfer}")
            .start(f"{folder}/{how}-{transfer}")
        )
        query.awaitTermination()
        sales = spark.read.schema(stream.schema).parquet(f"{folder}/sales")
        wanted = sales.join(products, "product_id", how).select(*out.columns)
        found = spark.read.parquet(f"{folder}/{how}-{transfer}")
        differ = found.exceptAll(wanted).count() + wanted.exceptAll(found).count()
        assert differ == 0, (how, transfer, differ)
        assert found.count() > 0, how
    print(f"pyspark {pyspark.__version__}: all joins have the rows of Spark's own")  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main()
