"""How often keys that are not held were asked for of late: a count-min sketch that ages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semistream.kernels.counting import sketch_add, sketch_estimate

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Sketch"]


class Sketch:
    """Counts codes in ``size`` bytes, rounded down to a power of two; too high, never too low.

    Counters that others see, too, may be given instead of a size; then a count may get lost.

    Four counters a code, of which only the least grow (conservative update: Estan and Varghese,
    SIGCOMM 2002). Counts end at 255; ageing halves them, as TinyLFU does (Einziger et al., TOS
    2017).

    Examples
    --------
    >>> sketch = Sketch(4096)
    >>> sketch.add(np.array([7, 7, 7, 9]))
    >>> sketch.estimate(np.array([7, 9, 11])).tolist()
    [3, 1, 0]
    >>> sketch.age()
    >>> sketch.estimate(np.array([7, 9])).tolist()
    [1, 0]
    """

    def __init__(self, size: int | npt.NDArray[np.uint8]) -> None:
        if isinstance(size, int):
            size = np.zeros(1 << max(3, size.bit_length() - 1), dtype=np.uint8)
        self._counters = size

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._counters.nbytes

    def add(self, codes: npt.NDArray[np.int64]) -> None:
        """Count codes."""
        sketch_add(self._counters, codes)

    def estimate(self, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return how often each code was counted, ageing considered."""
        counts = np.empty(len(codes), dtype=np.int64)
        sketch_estimate(self._counters, codes, counts)
        return counts

    def age(self) -> None:
        """Halve all counts."""
        np.right_shift(self._counters, 1, out=self._counters)
