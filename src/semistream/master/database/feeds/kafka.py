"""Change feed of a Kafka topic."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from semistream.errors import OptionError
from semistream.master.database.feeds.feed import (
    BEAT,
    EVERYTHING,
    Feed,
    FeedError,
    Notice,
    parse_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from confluent_kafka import Consumer, KafkaError, Message

__all__ = ["Topic"]

_SCHEME = "kafka://"
_AT_ONCE = 1000  # messages: a burst of changes is one notice
_WAIT = 0.2  # seconds for a message: how late a change may be reported
_TIMEOUT = 10.0  # seconds for the broker: as long as a follower trusts its rows


@dataclass(frozen=True)
class Topic(Feed):
    """A topic each of whose messages names a changed key: its own key, or its value without one.

    As JSON: a value, a list in the order of the master's key, or an object with its columns, as
    Debezium writes it. It is read from its end, and every process reads every change.

    Parameters
    ----------
    servers
        The brokers, as ``host:port``, with commas between them.
    topic
        The topic.
    options
        Further settings of the client, as ``security.protocol``; never shown.
    """

    servers: str
    topic: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def at(cls, address: str) -> Topic:
        """Read an address.

        Examples
        --------
        >>> Topic.at("kafka://localhost:9092/product-changes")
        Topic(servers='localhost:9092', topic='product-changes')
        """
        servers, _, topic = address.removeprefix(_SCHEME).partition("/")
        if not address.startswith(_SCHEME) or not servers or not topic or "/" in topic:
            raise OptionError(f"{address} is no topic; give {_SCHEME}host:port/topic")
        return cls(servers, topic)

    def listen(self, clock: Callable[[], float]) -> Iterator[Notice]:
        """Yield the keys of messages; query the end of the topic again and again."""
        kafka, failures = _client(), list[str]()
        consumer = self._consumer(kafka, failures)
        try:
            asked, reached = clock(), self._ends(consumer)
            place = kafka.TopicPartition
            consumer.assign([place(self.topic, number, end) for number, end in reached.items()])
            consumer.consume(1, timeout=0)  # what failed on the way is no loss
            failures.clear()
            yield Notice(by=asked)
            while True:
                asked, wanted = clock(), self._ends(consumer)
                if wanted.keys() != reached.keys():
                    raise self._lost("it has other partitions now")
                caught_up = False
                while clock() < asked + (BEAT if caught_up else _TIMEOUT):
                    notice = self._notice(consumer.consume(_AT_ONCE, timeout=_WAIT), reached)
                    if failures:
                        raise self._lost(failures[0])
                    caught_up = all(reached[number] >= end for number, end in wanted.items())
                    yield replace(notice, by=asked if caught_up else None)
        except kafka.KafkaException as error:
            raise self._lost(error.args[0].str()) from None
        finally:
            consumer.close()

    def _notice(self, messages: list[Message], reached: dict[int, int]) -> Notice:
        keys: list[Any] = []
        for message in messages:
            self._advance(message, reached)
            if message.error():
                continue
            try:
                keys.append(parse_key(message.key() or message.value() or b""))
            except ValueError:  # not understood
                keys.append(None)
        return EVERYTHING if None in keys else Notice(tuple(keys))

    def _advance(self, message: Message, reached: dict[int, int]) -> None:
        """Update how far a partition was read; records of transactions have no message."""
        ended = _client().KafkaError._PARTITION_EOF  # noqa: SLF001 - its public name
        error, partition, offset = message.error(), message.partition(), message.offset()
        assert partition is not None  # noqa: S101 - for the type checker
        assert offset is not None  # noqa: S101
        if error is None:
            reached[partition] = offset + 1
        elif error.code() == ended:
            reached[partition] = max(reached[partition], offset)
        else:
            raise self._lost(error.str())

    def _consumer(self, kafka: Any, failures: list[str]) -> Consumer:  # noqa: ANN401 - the module
        def failed(error: KafkaError) -> None:  # must not raise: the client would not close
            if error.code() == kafka.KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - its public name
                failures.append(error.str())

        settings = {
            "error_cb": failed,
            "bootstrap.servers": self.servers,
            "group.id": f"semistream-feed-{uuid.uuid4().hex}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,  # else queries for the end wait behind it
            "log_level": 0,
        }
        consumer: Consumer = kafka.Consumer({**settings, **self.options})
        return consumer

    def _ends(self, consumer: Consumer) -> dict[int, int]:
        """Query the end of each partition."""
        place = _client().TopicPartition
        topic = consumer.list_topics(self.topic, timeout=_TIMEOUT).topics[self.topic]
        if topic.error is not None or not topic.partitions:
            raise self._lost("the brokers do not have it")
        places = {number: place(self.topic, number) for number in topic.partitions}
        marks = {n: consumer.get_watermark_offsets(p, _TIMEOUT) for n, p in places.items()}
        if None in marks.values():
            raise self._lost(f"no answer within {_TIMEOUT:g} s")
        return {number: mark[1] for number, mark in marks.items()}

    def _lost(self, why: str) -> FeedError:
        return FeedError(f"the changes in topic {self.topic!r} are lost: {why}")


def _client() -> Any:  # noqa: ANN401 - the module
    try:
        import confluent_kafka  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        msg = "a feed from Kafka needs confluent-kafka: pip install 'semistream[kafka]'"
        raise OptionError(msg) from error
    return confluent_kafka
