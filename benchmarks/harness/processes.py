"""Processes that call functions: each has its own memory, and may die without harm to others."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Self

from benchmarks.harness.cgroup import MemoryGroup
from semistream.errors import SemistreamError

_ENDING = 10.0  # seconds in which a process, and then what it started, may end by itself


class ChildError(SemistreamError):
    """What was asked of another process failed there."""


class Child:
    """A process of a group of its own, which calls one function after the other.

    Parameters
    ----------
    longest
        Seconds without an answer after which it is given up.
    brief
        Makes a message of an exception, in the process.
    group
        A memory cgroup for the process and all that it starts, who see it as a container does.
    """

    def __init__(
        self,
        longest: float | None = None,
        brief: Callable[[Exception], str] = repr,
        group: MemoryGroup | None = None,
    ) -> None:
        self._longest = longest
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, brief, group), daemon=True)
        self._process.start()
        if group is not None:
            group.add(self.pid)  # from here: by now it has allocated hardly anything
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The number of the process, and of its group."""
        pid = self._process.pid
        assert pid is not None  # noqa: S101 - it was started
        return pid

    def call(self, function: Callable[..., Any], *args: object) -> Any:
        """Return what a function returns there."""
        self.begin(function, *args)
        return self.result()

    def begin(self, function: Callable[..., Any], *args: object) -> None:
        """Ask for a call, and do not wait for it."""
        with suppress(OSError):  # `result` says that it ended
            self._connection.send((function, args))

    def result(self) -> Any:
        """Wait for what was asked for last."""
        try:
            if not self._connection.poll(self._longest):
                msg = f"no answer in {self._longest:g} s"
                raise ChildError(msg)
            answer, error = self._connection.recv()
        except (EOFError, OSError):
            msg = "the process ended"
            raise ChildError(msg) from None
        if error:
            raise ChildError(error)
        return answer

    def close(self) -> None:
        """End the process and all that it started, in their own way if they do so soon."""
        self._connection.close()
        self._process.join(_ENDING)
        end = time.monotonic() + _ENDING
        with suppress(ProcessLookupError):
            while time.monotonic() < end:
                os.killpg(self.pid, 0)
                time.sleep(0.1)
            os.killpg(self.pid, signal.SIGKILL)
        self._process.join()


def _serve(
    connection: Connection, brief: Callable[[Exception], str], group: MemoryGroup | None
) -> None:
    """Answer calls until the other side is gone."""
    os.setpgid(0, 0)
    if group is not None:
        group.show_as_root()
    with suppress(EOFError, OSError):
        while True:
            function, args = connection.recv()
            try:
                answer = function(*args), ""
            except Exception as error:
                answer = None, brief(error)
            connection.send(answer)
