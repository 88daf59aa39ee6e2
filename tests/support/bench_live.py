"""Starts a PostgreSQL and a MariaDB server, and measures enrichment from them.

``make bench-live`` does; arguments go to ``python -m benchmarks live``.
"""

from __future__ import annotations

import os
import sys

from benchmarks.__main__ import app
from support.servers.databases import MariaDB, PostgreSQL


def main(arguments: list[str]) -> None:
    # Room for the table and its index, as any database in use has it.
    servers = [PostgreSQL(shared_buffers="512MB"), MariaDB(innodb_buffer_pool_size="512M")]
    try:
        for server in servers:
            server.start()
        # In the environment, not among the arguments, which others may list.
        os.environ["SEMISTREAM_BENCH_URLS"] = " ".join(server.url() for server in servers)
        app(["live", *arguments], prog_name="python -m benchmarks")
    finally:
        for server in servers:
            server.remove()


if __name__ == "__main__":
    main(sys.argv[1:])
