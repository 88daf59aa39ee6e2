"""The newest generations of all shards of a hot set, looked up as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semistream.arrow.page_directory import PageDirectory
from semistream.kernels.chains import find_in_shards, probe_shards

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from semistream.arrow.gather import OutputColumns
    from semistream.engine.cache import Flags, Found, Ints
    from semistream.hotset.slot import Generation

__all__ = ["Shards"]

_INDEX = 7  # numbers of a shard's index, see `probe_shards`


class Shards:
    """A hot set: a `semistream.engine.cache.CachedRows`.

    Parameters
    ----------
    generations
        Of each shard its generation, None where there is none.
    schema
        Their columns, the code first.
    """

    def __init__(self, generations: Sequence[Generation | None], schema: pa.Schema) -> None:
        self.generations = tuple(generations)
        self._index = np.zeros((len(generations), _INDEX), dtype=np.int64)
        for shard, generation in self.held:
            self._index[shard] = generation.index
        self.base = np.cumsum(self._index[:, 0]) - self._index[:, 0]
        """How many rows the shards before each have."""
        self.widest = max((generation.widest for _, generation in self.held), default=0)
        self._schema = schema
        self._directories: dict[tuple[str, ...], PageDirectory] = {}

    @property
    def held(self) -> list[tuple[int, Generation]]:
        """The shards that there are, with their numbers."""
        return [(number, each) for number, each in enumerate(self.generations) if each is not None]

    def __len__(self) -> int:
        return int(self._index[:, 0].sum())

    def probe(
        self, codes: Ints, cursor: tuple[int, int], once: bool, pairs: Found, hit: Flags
    ) -> tuple[int, int, int]:
        """Look codes up; see `semistream.kernels.chains.probe_shards`."""
        end: tuple[int, int, int] = probe_shards(codes, self._index, cursor, once, *pairs, hit)
        return end

    def find(self, codes: Ints) -> Ints:
        """Return the first row of each code, counted over all shards; −1 where there is none.

        No hits are counted.
        """
        first = np.empty(len(codes), dtype=np.int64)
        find_in_shards(codes, self._index, self.base, first)
        return first

    def gather(self, names: Sequence[str], right: OutputColumns, pairs: Found) -> None:
        """Append these columns of the rows that were found, shard by shard where some are nested.

        Pairs are put into that order then.
        """
        _, blocks, positions = pairs
        if PageDirectory.possible(self._schema):
            right.append_from(self._buffers(names), blocks, positions)
            return
        order = np.argsort(blocks, kind="stable")
        for each in pairs:
            each[:] = each[order]
        for shard, generation in self.held:
            some = positions[blocks == shard]
            if len(some):
                right.append([generation.batch.column(name) for name in names], some)

    def _buffers(self, names: Sequence[str]) -> PageDirectory:
        """Return where these columns lie, as if each shard were a page."""
        directory = self._directories.get(tuple(names))
        if directory is None:
            directory = PageDirectory(self._schema, names, len(self.generations))
            numbers = [0, *map(self._schema.names.index, names)]
            for shard, generation in self.held:
                offsets = [generation.offsets[number] or [] for number in numbers]
                directory.enter(shard, generation.address, offsets)
            self._directories[tuple(names)] = directory
        return directory
