"""Which keys of a sample a master has, without reading all of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semistream.master.files.filter import KeyFilter

if TYPE_CHECKING:
    import numpy.typing as npt

    from semistream.master import FileMaster

    Ints = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

__all__ = ["Presence", "look_up"]

_UNKNOWN = -1
_FILTER_BYTES = 64 << 20


@dataclass(frozen=True, eq=False)
class Presence:
    """What was found of some keys in a master."""

    page: npt.NDArray[np.int32]
    """The page that holds each key if any does, −1 where none does."""
    present: Flags
    """Which keys the master has: certain where ``certain``, else drawn so that the share is right.

    Of the keys that were not looked up, as many are taken for absent as were among those that were
    and that came about as often. Which ones is drawn at random.
    """
    certain: Flags
    matches: float
    """Master rows for each stream row that has any (1 where the master has no key twice)."""


def look_up(
    master: FileMaster, codes: Ints, counts: Ints, *, pages: int, seed: int = 0
) -> Presence:
    """Tell which of these different codes a master has.

    The index and the key filter, where there is one, tell some of the absent ones, and never all.
    So pages are read, at most ``pages``: half of them those that most rows of the sample ask for,
    where a hot absent key would be, the others at random. Keys on these pages are known for
    certain; those on the random ones speak for all others.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, semistream as ss
    >>> master = ss.build_master(pa.table({"id": [1, 2, 2, 4]}), tempfile.mkdtemp(), key="id")
    >>> found = look_up(master, np.array([2, 3, 4]), np.array([3, 1, 1]), pages=8)
    >>> found.present.tolist(), bool(found.certain.all()), found.matches
    ([True, False, True], True, 1.75)
    """
    page, rng = master.page_of(codes), np.random.default_rng(seed)
    maybe = page >= 0
    stored, values = master.manifest.filter_words, master.statistics.values
    if words := KeyFilter.affordable(stored, values, _FILTER_BYTES):
        maybe &= master.load_filter(words).may_contain(codes)
    asked = np.bincount(page[maybe], counts[maybe], minlength=master.pages)
    hot, drawn = _choose(asked, pages, rng)
    matches = np.where(maybe, _UNKNOWN, 0)
    _read(master, np.concatenate([hot, drawn]), codes, page, matches)
    certain = matches != _UNKNOWN
    typical = maybe & np.isin(page, drawn)
    present = np.where(certain, matches > 0, False)
    present |= _guess(~certain, typical, present, counts, rng)
    return Presence(page, present, certain, _mean_matches(matches, counts, typical, present))


def _choose(
    asked: npt.NDArray[np.number], most: int, rng: np.random.Generator
) -> tuple[Ints, Ints]:
    """Choose pages that are asked for: the busiest, and of the others some at random."""
    order = np.argsort(-asked, kind="stable")[: int((asked > 0).sum())]
    if len(order) <= most:
        return order, order[:0]
    hot = most // 2
    return order[:hot], rng.choice(order[hot:], most - hot, replace=False)


def _read(
    master: FileMaster, chosen: Ints, codes: Ints, page: npt.NDArray[np.int32], matches: Ints
) -> None:
    """Count the master rows of all codes on the chosen pages whose count is not known."""
    reader, wanted = master.reader(), np.flatnonzero((matches == _UNKNOWN) & np.isin(page, chosen))
    wanted = wanted[np.argsort(page[wanted], kind="stable")]
    for own in np.split(wanted, np.flatnonzero(np.diff(page[wanted])) + 1):
        if len(own):
            matches[own] = 0
            for part in master.parts(int(page[own[0]])):
                held = reader.load(part, 1)[0].column(0).to_numpy()
                until = np.searchsorted(held, codes[own], side="right")
                matches[own] += until - np.searchsorted(held, codes[own])


def _guess(
    unknown: Flags, typical: Flags, present: Flags, counts: Ints, rng: np.random.Generator
) -> Flags:
    """Draw which of the unknown keys are present, as often as the typical ones are."""
    guess, kinds = np.zeros_like(unknown), np.frexp(counts)[1]  # 1, 2 to 3, 4 to 7, … times
    for kind in np.unique(kinds[unknown]):
        distance = np.abs(kinds - kind)
        share = present[typical & (distance == distance[typical].min())].mean()
        keys = np.flatnonzero(unknown & (kinds == kind))
        guess[rng.choice(keys, round(share * len(keys)), replace=False)] = True
    return guess


def _mean_matches(matches: Ints, counts: Ints, typical: Flags, present: Flags) -> float:
    """Give the mean master rows of a row that has any; the typical keys speak for unknown ones."""
    known = matches > 0
    rows, found = int(counts[known].sum()), int((counts * matches)[known].sum())
    unknown = int(counts[present & ~known].sum())
    alike = known & typical
    if unknown and alike.any():
        rows += unknown
        found += unknown * (counts * matches)[alike].sum() / counts[alike].sum()
    return found / rows if rows else 1.0
