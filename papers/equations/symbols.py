"""The symbols of the papers' equations: sizes in bytes and tuples, costs in nanoseconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from semistream.errors import OptionError


@dataclass(frozen=True)
class Sizes:
    """What the equations take as given about R, S and the hash table.

    The defaults are the sizes that the papers print: tuples of 120 and 20 bytes, a fudge factor of
    4.8 (MESHJOIN, table 2), 12 bytes for a node of the queue (X-HYBRIDJOIN, table 2).

    Parameters
    ----------
    r_t
        R_t: tuples of R.
    v_p
        v_P: bytes of a page, or of whatever one read brings (d_T = b = v_P/v_R tuples).
    v_r, v_s
        v_R, v_S: bytes of a tuple of R and of S.
    ptr
        sizeof(ptr): bytes of the queue's node for a stream tuple.
    f
        The fudge factor: bytes of the hash table for a byte of a stream tuple.
    exponent
        The skew of Zipf's law; 0 is uniform.
    m
        How many tuples of R have the same join value.
    absent
        The share of stream tuples that have no match.

    Examples
    --------
    >>> sizes = Sizes(r_t=2_000_000, v_p=60_000)
    >>> sizes.n_r, sizes.d, sizes.values, round(sizes.alpha, 3)
    (4000.0, 500.0, 2000000.0, 0.889)
    """

    r_t: float
    v_p: float
    v_r: float = 120.0
    v_s: float = 20.0
    ptr: float = 12.0
    f: float = 4.8
    exponent: float = 1.0
    m: float = 1.0
    absent: float = 0.0

    def __post_init__(self) -> None:
        for name in ("r_t", "v_p", "v_r", "v_s", "f", "m"):
            if not getattr(self, name) > 0:
                msg = f"{name}={getattr(self, name)!r} is not possible; give a number above 0"
                raise OptionError(msg)
        if self.ptr < 0 or self.exponent < 0:
            msg = f"ptr={self.ptr!r}, exponent={self.exponent!r}: give numbers from 0 on"
            raise OptionError(msg)
        if not 0 <= self.absent < 1:
            msg = f"absent={self.absent!r} is not possible; give a share from 0 to below 1"
            raise OptionError(msg)

    @property
    def r_bytes(self) -> float:
        """R_t·v_R: bytes of R."""
        return self.r_t * self.v_r

    @property
    def n_r(self) -> float:
        """N_R: pages of R."""
        return self.r_bytes / self.v_p

    @property
    def d(self) -> float:
        """d_T, or b of CACHEJOIN and MOIJ: tuples that one page holds."""
        return self.v_p / self.v_r

    @property
    def values(self) -> float:
        """How many join values R has: R_t/m."""
        return self.r_t / self.m

    @property
    def held(self) -> float:
        """f·v_S + sizeof(ptr): bytes that a waiting stream tuple takes, queue included."""
        return self.f * self.v_s + self.ptr

    @property
    def alpha(self) -> float:
        """α: the hash table's share, such that it and the queue are full at the same time."""
        return self.f * self.v_s / self.held

    def h_s(self, left: float) -> float:
        """h_S: stream tuples that fit into what other components left, α·left/(f·v_S).

        >>> round(Sizes(r_t=2e6, v_p=60_000).h_s(50e6))
        462963
        """
        return max(0.0, self.alpha * left / (self.f * self.v_s))

    def window(self, left: float) -> dict[str, float]:
        """Return the bytes of hash table and queue: α·left and (1 − α)·left.

        >>> Sizes(r_t=2e6, v_p=60_000).window(108.0)
        {'hash table': 96.0, 'queue': 12.0}
        """
        return {"hash table": self.alpha * left, "queue": left - self.alpha * left}


@dataclass(frozen=True)
class Read:
    """c_I/O as a line: nanoseconds before the first byte, and for every byte.

    Examples
    --------
    >>> Read(fixed=100_000.0, byte=2.0)(8192)
    116384.0
    """

    fixed: float
    byte: float

    def __call__(self, size: float) -> float:
        """Return the nanoseconds of a read of so many bytes."""
        return self.fixed + self.byte * size


@dataclass(frozen=True)
class Costs:
    """Unit costs in nanoseconds; c_I/O is a function of the bytes that one read brings.

    The papers print none of them. All but ``c_io`` may stay 0: then reading is all that costs.

    Parameters
    ----------
    c_io
        c_I/O: to read so many bytes of R.
    c_h, c_o
        c_H: to look up a tuple in a hash table; c_O: to output a tuple.
    c_e, c_s, c_a
        c_E: to remove a stream tuple from hash table and queue; c_S: to read it; c_A: to append it.
    c_f
        c_F (CACHEJOIN, PCSRJ): to compare a tuple's frequency with the threshold.
    c_i, c_v
        c_I, c_V (MOIJ): the cache inequality for a tuple of R, and its eviction.

    Examples
    --------
    >>> costs = Costs(Read(100_000.0, 2.0), c_o=40.0, c_e=50.0, c_s=20.0, c_a=90.0)
    >>> costs.queued(m=1.0)
    200.0
    """

    c_io: Callable[[float], float]
    c_h: float = 0.0
    c_o: float = 0.0
    c_e: float = 0.0
    c_s: float = 0.0
    c_a: float = 0.0
    c_f: float = 0.0
    c_i: float = 0.0
    c_v: float = 0.0

    def queued(self, m: float) -> float:
        """Return the nanoseconds of a waiting tuple with m matches: m·c_O + c_E + c_S + c_A."""
        return m * self.c_o + self.c_e + self.c_s + self.c_a

    def cached(self, m: float) -> float:
        """Return the nanoseconds of a tuple that is answered at once: c_S + c_H + m·c_O."""
        return self.c_s + self.c_h + m * self.c_o
