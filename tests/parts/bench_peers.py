"""Starts a PostgreSQL server, and measures enrichment beside the alternatives.

``make bench-peers`` does; arguments go to ``semistream bench-peers``.
"""

from __future__ import annotations

import os
import sys

from parts.databases import PostgreSQL


def main(arguments: list[str]) -> None:
    from semistream.cli import main as command  # noqa: PLC0415 - after the server

    # Room for the table and its index, as any database in use has it.
    server = PostgreSQL(shared_buffers="512MB")
    try:
        server.start()
        # In the environment, not among the arguments, which others may list.
        os.environ["SEMISTREAM_BENCH_URL"] = server.url()
        sys.argv = ["semistream", "bench-peers", *arguments]
        command()
    finally:
        server.remove()


if __name__ == "__main__":
    main(sys.argv[1:])
