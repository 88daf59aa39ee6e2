"""Starts a PostgreSQL server, and measures enrichment beside the alternatives.

``make bench-peers`` does; arguments go to ``python -m benchmarks peers``.
"""

from __future__ import annotations

import os
import sys

from benchmarks.__main__ import app
from support.servers.databases import PostgreSQL


def main(arguments: list[str]) -> None:
    # Room for the table and its index, as any database in use has it.
    server = PostgreSQL(shared_buffers="512MB")
    try:
        server.start()
        # In the environment, not among the arguments, which others may list.
        os.environ["SEMISTREAM_BENCH_URL"] = server.url()
        app(["peers", *arguments], prog_name="python -m benchmarks")
    finally:
        server.remove()


if __name__ == "__main__":
    main(sys.argv[1:])
