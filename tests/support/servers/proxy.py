"""A TCP proxy before a server: slow, cut, refusing, or silent, as a test says."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

_CHUNK = 1 << 16


class Proxy:
    """Relays connections to a port of this host; what it does to them may change at any time.

    Attributes
    ----------
    delay
        Seconds that every piece of an answer is late.
    rate
        Bytes a second of answers, of each connection; 0 is no limit.
    silent
        Whether nothing of an answer is passed on, while connections stay open.
    accepted
        How many connections were made so far.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self.delay, self.rate, self.silent = 0.0, 0, False
        self.accepted = 0
        self._until_cut: int | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self.accept()
        return self

    def __exit__(self, *_: object) -> None:
        self.refuse()
        self._do(self._finish())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def alive(self) -> int:
        """How many connections are open now."""
        return len(self._writers) // 2

    def accept(self) -> None:
        """Take connections, after `refuse` on the same port."""
        self._do(self._listen())

    def refuse(self) -> None:
        """Refuse new connections, and cut those that are there."""
        self._do(self._close())
        self.cut()

    def cut(self, after: int | None = None) -> None:
        """Break every connection off; or the next one whose answers have come to so many bytes."""
        self._until_cut = after
        if after is None:
            self._do(self._abort())

    def _do(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(10)

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _abort(self) -> None:
        for writer in list(self._writers):
            _reset(writer)

    async def _finish(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            _reset(writer)
            return
        ends = {writer, back}
        self._writers |= ends
        try:
            both = [self._requests(reader, back), self._answers(there, writer)]
            await asyncio.wait(
                [asyncio.ensure_future(one) for one in both], return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            self._writers -= ends
            for end in ends:
                _reset(end)

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await _read(reader):
            writer.write(data)
            await writer.drain()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await _read(reader):
            await asyncio.sleep(self.delay)
            while self.silent:
                await asyncio.sleep(0.01)
            if self._until_cut is not None:
                self._until_cut -= len(data)
                if self._until_cut < 0:
                    self._until_cut = None
                    return
            await self._pass_on(data, writer)

    async def _pass_on(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        rate = self.rate
        size = max(1, rate // 50) if rate else len(data)
        for start in range(0, len(data), size):
            writer.write(data[start : start + size])
            await writer.drain()
            if rate:
                await asyncio.sleep(size / rate)


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(_CHUNK)
    except OSError:
        return b""


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close at once, with a reset and not with an orderly end."""
    found = writer.get_extra_info("socket")
    if found is not None and found.fileno() >= 0:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.transport.abort()
