"""The observer hook: callbacks for studies and tests of an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from semistream.engine.engine import Engine
    from semistream.engine.window import Chunk

__all__ = ["Observer"]


class Observer:
    """Callbacks of a join's engines; subclass it and override what you need.

    An engine may be looked at in a callback and between calls of the join (its ``window``,
    ``algorithm``, ``metrics``, ``plan``), not changed. A join has one engine, but PCSRJ has one for
    each node, and calls from their threads. An exception ends the join as a failed read does.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, semistream as ss
    >>> class Trace(Observer):
    ...     def on_pages(self, engine, runs):
    ...         print(f"{engine.window.waiting} rows wait, pages {[*runs]} come")
    >>> products = pa.table({"id": range(5000), "price": [1.0] * 5000})
    >>> master = ss.build_master(products, tempfile.mkdtemp(), key="id", page_bytes="4KB")
    >>> sales = pa.record_batch({"id": [7, 7, 4000]})
    >>> options = {"memory": "64KB", "algorithm": "hybridjoin", "observer": Trace()}
    >>> join = ss.Join(master, sales.schema, on="id", **options)
    >>> for batch in (*join.offer(sales), *join.drain()):
    ...     pass
    3 rows wait, pages [range(0, 1)] come
    1 rows wait, pages [range(17, 18)] come
    """

    def on_start(self, engine: Engine) -> None:
        """Take an engine that is ready for its first row."""

    def on_chunk(self, engine: Engine, chunk: Chunk) -> None:
        """Take rows that were just taken in, before any of them is answered."""

    def on_pages(self, engine: Engine, runs: Sequence[range]) -> None:
        """Take the page runs that were chosen, before they are read."""

    def on_read(self, engine: Engine, parts: npt.NDArray[np.int64]) -> None:
        """Take the parts of pages that are about to be read, in ascending order."""

    def on_round(self, engine: Engine) -> None:
        """Note the end of a round of the algorithm's loop."""
