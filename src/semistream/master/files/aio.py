"""Several reads of a file in flight at once, by the kernel's asynchronous I/O (io_submit(2)).

Threads were tried: a read that ends must wake its thread, and that one ours, 50 to 100 µs each on
an idle processor, as long as the read itself.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import time
import weakref
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from semistream.arrow.memory import private_memory

if TYPE_CHECKING:
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]

__all__ = ["Reads", "reads_per_second"]


class _Calls(NamedTuple):
    """The numbers of the system calls; the C library has no functions for them."""

    setup: int
    destroy: int
    submit: int
    get_events: int


_CALLS = {"x86_64": _Calls(206, 207, 209, 208), "aarch64": _Calls(0, 1, 2, 4)}
_MOST_IDLE = 4  # contexts of a depth: to create and destroy one takes 30 ms
_idle: defaultdict[tuple[int, int], list[int]] = defaultdict(list)  # by process and depth
_libc = ctypes.CDLL(None, use_errno=True)


_CONTROL = np.dtype(  # struct iocb of <linux/aio_abi.h>, on a little-endian machine
    [
        ("data", "<u8"),
        ("key", "<u4"),
        ("flags", "<u4"),
        ("operation", "<u2"),  # 0 is IOCB_CMD_PREAD
        ("priority", "<i2"),
        ("file", "<u4"),
        ("address", "<u8"),
        ("size", "<u8"),
        ("offset", "<i8"),
        ("reserved", "<u8"),
        ("more_flags", "<u4"),
        ("event_file", "<u4"),
    ]
)
_EVENT = np.dtype(  # struct io_event
    [("data", "<u8"), ("control", "<u8"), ("result", "<i8"), ("more", "<i8")]
)


class Reads:
    """Reads in flight: ``groups`` of them, each of at most ``most`` reads that one call starts.

    Whoever starts reads keeps their memory until the group was waited for.
    """

    def __init__(self, calls: _Calls, context: int, groups: int, most: int) -> None:
        self._calls, self._context = calls, ctypes.c_ulong(context)
        self._controls = np.zeros((groups, most), dtype=_CONTROL)
        self._controls["data"] = np.arange(groups * most).reshape(groups, most)
        places = self._controls.ctypes.data + _CONTROL.itemsize * np.arange(groups * most)
        self._pointers = places.astype(np.uint64).reshape(groups, most)
        self._events = np.zeros(groups * most, dtype=_EVENT)
        self._pending = np.zeros(groups, dtype=np.int64)  # reads of each group in flight
        self._whole = np.zeros(groups, dtype=np.bool_)  # whether none of a group fell short
        self._process = os.getpid()
        owner = self._process, groups * most
        weakref.finalize(self, _end, calls, owner, context, self._pending)

    @classmethod
    def open(cls, groups: int, most: int) -> Reads | None:
        """Create a context for so many reads; return None where the system has no such calls."""
        calls, context, depth = _CALLS.get(platform.machine()), ctypes.c_ulong(0), groups * most
        if calls is not None:
            with suppress(IndexError):  # there is none, or another thread was faster
                return cls(calls, _idle[os.getpid(), depth].pop(), groups, most)
        if calls is None or _libc.syscall(calls.setup, depth, ctypes.byref(context)):
            return None
        return cls(calls, context.value, groups, most)

    @property
    def is_ours(self) -> bool:
        """Whether this process made it: reads in flight are not inherited by a fork."""
        return self._process == os.getpid()

    def start(self, group: int, file: int, addresses: Ints, sizes: Ints, offsets: Ints) -> None:
        """Start the reads of a group of an open file, as many as the system takes."""
        count = len(sizes)
        controls = self._controls[group, :count]
        controls["file"], controls["address"] = file, addresses
        controls["size"], controls["offset"] = sizes, offsets
        pointers = ctypes.c_void_p(self._pointers[group].ctypes.data)
        taken = _libc.syscall(self._calls.submit, self._context, ctypes.c_long(count), pointers)
        self._pending[group], self._whole[group] = max(0, taken), taken == count

    def wait(self, group: int) -> bool:
        """Wait for the reads of a group; return whether all were started and none fell short."""
        while self._pending[group]:
            self._collect(int(self._pending[group]))
        return bool(self._whole[group])

    def wait_for_all(self) -> None:
        """Wait until nothing is in flight any more."""
        while self._pending.any():
            self._collect()

    def _collect(self, least: int = 1) -> None:
        """Collect the results of reads, at least so many: to be woken for each costs time."""
        count = _libc.syscall(
            self._calls.get_events,
            self._context,
            ctypes.c_long(least),
            ctypes.c_long(len(self._events)),
            ctypes.c_void_p(self._events.ctypes.data),
            None,
        )
        if count < 0 and ctypes.get_errno() != errno.EINTR:  # nothing will come any more
            self._pending[:], self._whole[:] = 0, False
        events = self._events[: max(0, count)]
        numbers = events["data"].astype(np.int64)
        groups = numbers // self._controls.shape[1]
        np.subtract.at(self._pending, groups, 1)
        short = events["result"] != self._controls.reshape(-1)["size"][numbers].astype(np.int64)
        self._whole[groups[short]] = False


def reads_per_second(file: int, size: int, offsets: Ints, seconds: float) -> float | None:
    """Measure how many direct reads of so many bytes a disk does in a second, 32 in flight.

    They are at these offsets of an open file, again and again. Returns None where the system does
    not take such reads.
    """
    groups, most = 4, 8
    reads, memory = Reads.open(groups, most), private_memory(groups * most * size)
    if reads is None:
        return None
    first = np.frombuffer(memory, np.uint8).ctypes.data
    places = (first + size * np.arange(groups * most)).reshape(groups, most)
    done, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds or done < groups * most:
        group = done // most % groups
        if done >= groups * most and not reads.wait(group):
            break
        next_ones = np.take(offsets, done + np.arange(most), mode="wrap")
        reads.start(group, file, places[group], np.full(most, size), next_ones)
        done += most
    whole = [reads.wait(group) for group in range(groups)]
    return (done - groups * most) / spent if all(whole) and done > groups * most else None


def _end(calls: _Calls, owner: tuple[int, int], context: int, pending: Ints) -> None:
    """Keep the context for others of this process and depth, or destroy it.

    With reads in flight it is destroyed, which waits for them.
    """
    idle = _idle[owner]
    if owner[0] == os.getpid() and not pending.any() and len(idle) < _MOST_IDLE:
        idle.append(context)
    elif owner[0] == os.getpid():
        _libc.syscall(calls.destroy, ctypes.c_ulong(context))
        pending[:] = 0  # a sweep that was left in the middle may be closed after this
