"""What a sample of a stream tells: skew, row bytes, absent keys, and with them its demand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from semistream.arrow.types import row_bytes
from semistream.cost.demand import Demand
from semistream.cost.sampling.frequencies import frequencies
from semistream.cost.sampling.presence import look_up
from semistream.cost.sampling.sources import read_stream
from semistream.cost.sampling.zipf_fit import ZipfFit, fit_zipf
from semistream.errors import OptionError
from semistream.spec import JoinSpec

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    import numpy.typing as npt
    import pyarrow as pa

    from semistream.master import FileMaster
    from semistream.spec import On

    Ints = npt.NDArray[np.int64]

__all__ = ["Sample", "sample_source", "sample_stream", "single_out"]

_ROWS, _PAGES = 1_000_000, 256
_PLACED = 64  # keys for each page of the master whose own pages are kept


@dataclass(frozen=True, eq=False)
class Sample:
    """What was seen of a stream, and found of its keys in a master; `sample_stream` makes it."""

    rows: int
    nulls: int
    """Rows whose key is null, or a number that the master's type cannot hold: no page is read."""
    row_bytes: float
    """The mean bytes of a row, as the window holds it."""
    columns: int
    keys: int
    """How many different keys came, those that the master does not have included."""
    counts: Ints
    """How often each key that the master has was seen, most often first."""
    page: npt.NDArray[np.int32]
    """The pages of these keys."""
    absent: float
    """The share of rows with no match, of those that have a key."""
    certain: float
    """The share of these rows of which it is certain whether the master has their key."""
    matches: float
    """Master rows for each stream row that has any."""
    fit: ZipfFit | None
    """The nearest Zipf law; None where no row has a match."""
    values: int
    """How many different keys the master has."""
    snapshot: str
    """Which content of the master was asked."""

    @property
    def law(self) -> str:
        """``"zipf"`` where Zipf's law holds, ``"counted"`` where the frequencies seen are taken."""
        return "zipf" if self.fit and self.fit.holds else "counted"

    @property
    def repeats(self) -> float:
        """How many rows, on average, have the same key."""
        return (self.rows - self.nulls) / max(1, self.keys)

    def demand(self, master: FileMaster) -> Demand:
        """Give what the stream asks of the master that was sampled with.

        The shares are those of Zipf's law, or of `frequencies` where it does not hold; the keys
        seen most often lie on their real pages. Rows with a null key have no part in it.
        """
        if master.snapshot != self.snapshot:
            msg = f"{master.path}: the sample was taken with another master; take it with this one"
            raise OptionError(msg)
        if self.fit is None:
            msg = (
                f"none of {self.rows:,} sampled rows has a match in {master.path} ({self.nulls:,} "
                "have a null key): check that on= names the right columns, and their types"
            )
            raise OptionError(msg)
        page = self.page[: _PLACED * master.pages]
        if self.law == "zipf":
            drawn = Demand.zipf(self.values, self.fit.exponent, master.pages, absent=self.absent)
            placed = np.concatenate([page, drawn.page[len(page) :]])[: len(drawn.page)]
            return replace(drawn, page=placed, matches=self.matches)
        groups = frequencies(self.counts, self.values, self.fit.exponent)
        size, share = single_out(*groups, len(page))
        return Demand(size, share, page, master.pages, self.absent, self.matches)

    def describe(self) -> str:
        """Say in a few lines what the stream is like.

        Examples
        --------
        >>> import tempfile, semistream as ss
        >>> from semistream.workloads import Stream, Zipf, master_table
        >>> master = ss.build_master(master_table(1000), tempfile.mkdtemp(), key="key")
        >>> stream = Stream(Zipf(1000, exponent=1.0), seed=1, absent=0.1)
        >>> print(sample_stream(stream.batches(rows=50_000), master, "key").describe())
        rows     50,000 of 21 B, 0 with a null key
        keys     1,749 different, 28.6 rows each
        absent   9.7% of rows with a key (looked up for 100.0% of them)
        matches  1.00 master rows for a row that has any
        skew     Zipf's law with exponent 1.00 ± 0.01 (misfit 0.004, at most 0.035)
        """
        return "\n".join(
            [
                f"rows     {self.rows:,} of {self.row_bytes:.0f} B, {self.nulls:,} with a null key",
                f"keys     {self.keys:,} different, {self.repeats:.1f} rows each",
                f"absent   {self.absent:.1%} of rows with a key "
                f"(looked up for {self.certain:.1%} of them)",
                f"matches  {self.matches:.2f} master rows for a row that has any",
                f"skew     {self._skew()}",
            ]
        )

    def as_dict(self) -> dict[str, Any]:
        """Give the same for programs; without a match nothing is known of a law."""
        law: dict[str, Any] = {"law": None}
        if self.fit is not None:
            law = {
                "law": self.law,
                "exponent": self.fit.exponent,
                "exponent_error": self.fit.error,
                "misfit": self.fit.misfit,
                "misfit_allowed": self.fit.allowed,
            }
        return law | {
            "absent": self.absent,
            "matches": self.matches,
            "sampled_rows": self.rows,
            "sampled_row_bytes": self.row_bytes,
            "null_keys": self.nulls,
            "keys": self.keys,
            "looked_up": self.certain,
        }

    def _skew(self) -> str:
        fit = self.fit
        if fit is None:
            return "not known, for no row has a match"
        misfit = f"misfit {fit.misfit:.3f}, at most {fit.allowed:.3f}"
        if not fit.holds:
            return f"as counted: Zipf's law is off, at best with {fit.exponent:.2f} ({misfit})"
        error = max(0.01, fit.error)
        return f"Zipf's law with exponent {fit.exponent:.2f} ± {error:.2f} ({misfit})"


def sample_stream(
    batches: Iterable[pa.RecordBatch],
    master: FileMaster,
    on: On,
    *,
    rows: int = _ROWS,
    pages: int = _PAGES,
    seed: int = 0,
) -> Sample:
    """Take the first ``rows`` rows of a stream for a sample, and look their keys up in a master.

    Memory is bounded by about 50 bytes a row and one batch; 64 MB more for the master's key filter.

    Parameters
    ----------
    batches
        The stream's rows. No more are taken than are needed.
    master
        The master that will be joined with.
    on
        The stream's key columns, as for `semistream.Join`.
    rows
        The most rows to take.
    pages
        The most pages of the master to read, see `look_up`.
    seed
        Of what is drawn at random.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, semistream as ss
    >>> master = ss.build_master(pa.table({"id": range(100)}), tempfile.mkdtemp(), key="id")
    >>> batch = pa.record_batch({"id": [1, 7, 7, 500, None]})
    >>> sample = sample_stream([batch], master, on="id")
    >>> sample.counts.tolist(), sample.absent, sample.nulls
    ([2, 1], 0.25, 1)
    """
    for name, value, usual in (("rows", rows, _ROWS), ("pages", pages, _PAGES)):
        if value < 1:
            msg = f"{name}={value!r} is not possible; give at least 1, {usual:,} is usual"
            raise OptionError(msg)
    seen = _Seen.of(batches, master, on, rows)
    codes, counts = np.unique(seen.codes, return_counts=True)
    found = look_up(master, codes, counts, pages=pages, seed=seed)
    with_key = max(1, len(seen.codes))
    order = np.flatnonzero(found.present)
    order = order[np.argsort(-counts[order], kind="stable")]
    values = max(master.statistics.values, len(order))  # what was not looked up may be too many
    return Sample(
        rows=seen.rows,
        nulls=seen.rows - len(seen.codes),
        row_bytes=seen.bytes / max(1, seen.rows),
        columns=seen.columns,
        keys=len(codes),
        counts=counts[order],
        page=found.page[order],
        absent=int(counts[~found.present].sum()) / with_key,
        certain=int(counts[found.certain].sum()) / with_key,
        matches=found.matches,
        fit=fit_zipf(counts[order], values) if len(order) else None,
        values=values,
        snapshot=master.snapshot,
    )


def sample_source(
    source: str | os.PathLike[str], master: FileMaster, on: On, *, rows: int = _ROWS, seed: int = 0
) -> Sample:
    r"""Take a sample of files or of a Kafka topic, see `read_stream` for what there may be.

    Examples
    --------
    >>> import tempfile, pathlib, pyarrow as pa, semistream as ss
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> master = ss.build_master(pa.table({"id": range(100)}), folder / "master", key="id")
    >>> _ = (folder / "sales.csv").write_text("id,amount\n7,3\n7,1\n200,5\n")
    >>> sample_source(folder / "sales.csv", master, on="id").counts.tolist()
    [2]
    """
    batches = read_stream(source, _key_types(master, on), seed=seed)
    return sample_stream(batches, master, on, rows=rows, seed=seed)


def _key_types(master: FileMaster, on: On) -> dict[str, pa.DataType]:
    """Give the types that the stream's key columns must have; `JoinSpec` checks the names."""
    names = [on] if isinstance(on, str) else on
    pairs = dict(names) if isinstance(names, Mapping) else {name: name for name in names}
    types = dict(zip(master.key, master.keys.types, strict=True))
    return {ours: types[theirs] for ours, theirs in pairs.items() if theirs in types}


@dataclass(frozen=True, eq=False)
class _Seen:
    """The rows of a sample: how many, their bytes, the codes of those that have a key."""

    rows: int
    bytes: int
    columns: int
    codes: Ints

    @classmethod
    def of(cls, batches: Iterable[pa.RecordBatch], master: FileMaster, on: On, rows: int) -> _Seen:
        taken, size, columns, codes = 0, 0, 0, [np.empty(0, np.int64)]
        for batch in batches:
            part = batch.slice(0, rows - taken)
            names = JoinSpec.resolve(master, part.schema, on, "semi", None, "").stream_keys
            found = master.keys.encode([part.column(name) for name in names])
            codes.append(found.values[found.valid])
            size += int(row_bytes(part).sum())
            taken, columns = taken + part.num_rows, max(columns, part.num_columns)
            if taken >= rows:
                break
        return cls(taken, size, columns, np.concatenate(codes))


def single_out(
    size: npt.NDArray[np.float64], share: npt.NDArray[np.float64], keys: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Make so many groups of one key each of the first groups; all shares add up to 1 again."""
    until = np.cumsum(size)
    single = share[np.minimum(np.searchsorted(until, np.arange(keys) + 0.5), len(share) - 1)]
    left = np.diff(np.maximum(until, keys), prepend=keys)
    size = np.concatenate([np.ones(keys), left[left > 0]])
    share = np.concatenate([single, share[left > 0]])
    return size, share / (size @ share)
