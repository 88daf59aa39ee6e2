"""Processes with a Spark session each: one that runs out of memory takes no other with it."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from pyspark.sql import SparkSession

from semistream.errors import SemistreamError
from semistream.spark.cluster.session import session

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

__all__ = ["Caller", "EngineError", "Engines"]

_RAISED = re.compile(r"[\w.]+(Error|Exception): ")
_PATH = {"spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[2])}
"""Functions that run in Python workers are found there by the names of their modules."""
_ENDING = 10.0  # seconds in which a process, and then its JVM, may end by itself


class EngineError(SemistreamError):
    """What was asked of a process with a Spark session failed there."""


class Caller(Protocol):
    """Calls functions where there is a Spark session."""

    def call(self, where: str, function: Callable[..., Any], *args: object) -> Any:  # noqa: ANN401
        """Give what a function returns that runs in the process with this name."""


class Engines:
    """Processes by name, started when they are first asked.

    Parameters
    ----------
    masters
        For each name the Spark master.
    config
        Spark settings, for all of them.
    longest
        Seconds without an answer after which a process is given up.
    special
        For some names, settings of their own.
    """

    def __init__(
        self,
        masters: dict[str, str],
        config: dict[str, str],
        longest: float = 240.0,
        special: dict[str, dict[str, str]] | None = None,
    ) -> None:
        self._masters, self._config, self._longest = masters, config, longest
        self._special = special or {}
        self._running: dict[str, _Engine] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for engine in self._running.values():
            engine.close()

    def pid(self, where: str) -> int:
        """Give the process with this name, above its JVM and its workers."""
        return self._engine(where).pid

    def call(self, where: str, function: Callable[..., Any], *args: object) -> Any:  # noqa: ANN401
        """Give what a function returns; after an error the process is started anew."""
        try:
            return self._engine(where).call(function, args)
        except EngineError:
            self._running.pop(where).close()
            raise

    def _engine(self, where: str) -> _Engine:
        if where not in self._running:
            config = self._config | self._special.get(where, {})
            self._running[where] = _Engine(self._masters[where], config, self._longest)
        return self._running[where]


class _Engine:
    def __init__(self, master: str, config: dict[str, str], longest: float) -> None:
        self._longest = longest
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, master, config), daemon=True)
        self._process.start()
        theirs.close()

    def call(self, function: Callable[..., Any], args: tuple[object, ...]) -> Any:  # noqa: ANN401
        try:
            self._connection.send((function, args))
            if not self._connection.poll(self._longest):
                msg = f"no answer in {self._longest:g} s"
                raise EngineError(msg)
            answer, error = self._connection.recv()
        except (EOFError, OSError):
            msg = "the process ended"
            raise EngineError(msg) from None
        if error:
            raise EngineError(error)
        return answer

    def close(self) -> None:
        """End the process and its JVM, in their own way if they do so soon."""
        self._connection.close()
        self._process.join(_ENDING)
        end = time.monotonic() + _ENDING
        with suppress(ProcessLookupError):
            while time.monotonic() < end:
                os.killpg(self.pid, 0)
                time.sleep(0.1)
            os.killpg(self.pid, signal.SIGKILL)
        self._process.join()

    @property
    def pid(self) -> int:
        """The process, which is the first of a group of its own."""
        pid = self._process.pid
        assert pid is not None  # noqa: S101 - it was started
        return pid


def _serve(connection: Connection, master: str, config: dict[str, str]) -> None:
    """Answer calls until the other side is gone."""
    os.setpgid(0, 0)
    with suppress(EOFError, OSError):
        while True:
            function, args = connection.recv()
            connection.send(_answer(function, args, master, config))
    spark = SparkSession.getActiveSession()
    if spark is not None:
        spark.stop()


def _answer(
    function: Callable[..., Any], args: tuple[object, ...], master: str, config: dict[str, str]
) -> tuple[Any, str]:
    """Give what a function returns, or what went wrong, be it that Spark does not start."""
    try:
        session("semistream-bench", master=master, config=_PATH | config)
        return function(*args), ""
    except Exception as error:
        return None, _brief(error)


def _brief(error: Exception) -> str:
    r"""Give what an error says, without Java's stack.

    Examples
    --------
    >>> _brief(ValueError("no\n  at java.lang"))
    'ValueError: no'
    """
    lines = [line.strip(" :") for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith("An error occurred while calling")]
    raised = [line for line in lines if _RAISED.match(line)]
    if raised and "Traceback" in str(error):  # in a worker: Spark's own first line says nothing
        return raised[-1][:300]
    first = re.sub(r"^\[STREAM_FAILED\].*?exception: ", "", told[0] if told else "")
    return f"{type(error).__name__}: {first}"[:300]
