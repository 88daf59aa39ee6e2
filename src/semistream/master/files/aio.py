"""Several reads of a file in flight at once, by the kernel's asynchronous I/O (io_submit(2)).

Threads were tried: a read that ends must wake its thread, and that one ours, 50 to 100 µs each on
an idle processor, as long as the read itself.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import weakref
from collections import defaultdict
from typing import NamedTuple

__all__ = ["Reads"]


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


class _Control(ctypes.Structure):
    """struct iocb of <linux/aio_abi.h>, on a little-endian machine."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("operation", ctypes.c_uint16),  # 0 is IOCB_CMD_PREAD
        ("priority", ctypes.c_int16),
        ("file", ctypes.c_uint32),
        ("address", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("more_flags", ctypes.c_uint32),
        ("event_file", ctypes.c_uint32),
    )


class _Event(ctypes.Structure):
    """struct io_event of <linux/aio_abi.h>."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("control", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("more", ctypes.c_int64),
    )


class Reads:
    """At most ``depth`` reads in flight, each in a slot of its own.

    Whoever starts a read keeps its memory until the read was waited for.
    """

    def __init__(self, calls: _Calls, context: int, depth: int) -> None:
        self._calls, self._context = calls, context
        self._controls = [_Control(data=slot) for slot in range(depth)]
        self._events = (_Event * depth)()
        self._results: dict[int, int] = {}
        self._in_flight: set[int] = set()
        self._process = os.getpid()
        weakref.finalize(self, _end, calls, (self._process, depth), context, self._in_flight)

    @classmethod
    def open(cls, depth: int) -> Reads | None:
        """Create a context for so many reads; return None where the system has no such calls."""
        calls, context = _CALLS.get(platform.machine()), ctypes.c_ulong(0)
        if calls is not None and (idle := _idle[os.getpid(), depth]):
            return cls(calls, idle.pop(), depth)
        if calls is None or _libc.syscall(calls.setup, depth, ctypes.byref(context)):
            return None
        return cls(calls, context.value, depth)

    @property
    def is_ours(self) -> bool:
        """Whether this process made it: reads in flight are not inherited by a fork."""
        return self._process == os.getpid()

    def start(self, slot: int, file: int, address: int, size: int, offset: int) -> bool:
        """Start a read of an open file; False where the system does not take it."""
        control = self._controls[slot]
        control.file, control.address, control.size, control.offset = file, address, size, offset
        pointer = (ctypes.POINTER(_Control) * 1)(ctypes.pointer(control))
        context = ctypes.c_ulong(self._context)
        taken = _libc.syscall(self._calls.submit, context, ctypes.c_long(1), pointer) == 1
        if taken:
            self._in_flight.add(slot)
        return bool(taken)

    def wait(self, slot: int) -> int:
        """Wait for a read that was started; return its bytes, or a negative error number."""
        while slot in self._in_flight:
            self._collect()
        return self._results.pop(slot, -errno.EINVAL)

    def wait_for_all(self) -> None:
        """Wait until nothing is in flight any more."""
        while self._in_flight:
            self._collect()
        self._results.clear()

    def _collect(self) -> None:
        count = _libc.syscall(
            self._calls.get_events,
            ctypes.c_ulong(self._context),
            ctypes.c_long(1),
            ctypes.c_long(len(self._events)),
            self._events,
            None,
        )
        if count < 0 and ctypes.get_errno() != errno.EINTR:  # nothing will come any more
            self._results |= dict.fromkeys(self._in_flight, -ctypes.get_errno())
            self._in_flight.clear()
        for event in self._events[: max(0, count)]:
            self._results[event.data] = event.result
            self._in_flight.discard(event.data)


def _end(calls: _Calls, owner: tuple[int, int], context: int, flying: set[int]) -> None:
    """Keep the context for others of this process and depth, or destroy it.

    With reads in flight it is destroyed, which waits for them.
    """
    idle = _idle[owner]
    if owner[0] == os.getpid() and not flying and len(idle) < _MOST_IDLE:
        idle.append(context)
    elif owner[0] == os.getpid():
        _libc.syscall(calls.destroy, ctypes.c_ulong(context))
        flying.clear()  # a sweep that was left in the middle may be closed after this
