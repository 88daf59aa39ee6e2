"""Database servers that live as long as a benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module

# Room for the table and its index, as any database in use has it.
_SETTINGS = {
    "PostgreSQL": {"shared_buffers": "512MB"},
    "MariaDB": {"innodb_buffer_pool_size": "512M"},
}


@contextmanager
def running(names: Sequence[str]) -> Iterator[list[str]]:
    """Start servers, and return their addresses; none where the tests' are not on the path.

    They are those of ``tests/support``, which ``make`` puts on the path.
    """
    with ExitStack() as stack:
        try:
            module = import_module("support.servers.databases") if names else None
        except ModuleNotFoundError:
            module = None
        servers = [getattr(module, name)(**_SETTINGS[name]) for name in names] if module else []
        for server in servers:
            stack.callback(server.remove)
            server.start()
        yield [server.url() for server in servers]
