"""Reading a Kafka topic whose messages are JSON."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

import pyarrow as pa

from semistream.cost.sampling.json_rows import json_rows
from semistream.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confluent_kafka import Consumer, Message

__all__ = ["SCHEME", "read_topic"]

SCHEME = "kafka://"
_AT_ONCE = 1000
_TIMEOUT = 10.0  # seconds


def read_topic(
    address: str, types: Mapping[str, pa.DataType], *, timeout: float = _TIMEOUT
) -> Iterator[pa.RecordBatch]:
    """Give the rows of a topic, from its earliest message to the end of all its partitions.

    Nothing is committed, so that no other reader notices. Messages without a value are left out.

    Parameters
    ----------
    address
        ``"kafka://host:port/topic"``; several brokers with commas between them.
    types
        The types of columns; those of others are found from the values.
    timeout
        Seconds to wait for the broker, or for a further message, before that is an error.

    Examples
    --------
    >>> read_topic("kafka://sales", {})
    Traceback (most recent call last):
    semistream.errors.OptionError: kafka://sales is no topic; give kafka://host:port/topic
    """
    brokers, _, topic = address.removeprefix(SCHEME).partition("/")
    if not brokers or not topic or "/" in topic:
        raise OptionError(f"{address} is no topic; give {SCHEME}host:port/topic")
    return _batches(_consumer(brokers), topic, types, timeout)


def _consumer(brokers: str) -> Consumer:
    try:
        from confluent_kafka import Consumer  # noqa: PLC0415 - most do not need it
    except ModuleNotFoundError as error:
        msg = "reading a Kafka topic needs confluent-kafka: pip install 'semistream[kafka]'"
        raise OptionError(msg) from error
    settings = {"bootstrap.servers": brokers, "group.id": "semistream-sample", "log_level": 0}
    return Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})


def _batches(
    consumer: Consumer, topic: str, types: Mapping[str, pa.DataType], timeout: float
) -> Iterator[pa.RecordBatch]:
    try:
        left = _assign(consumer, topic, timeout)
        while left:
            messages = _next(consumer, topic, timeout)
            left -= {message.partition() for message in messages if message.error()}
            values = [message.value() for message in messages if not message.error()]
            yield from json_rows((value for value in values if value), types)
    except pa.ArrowInvalid as error:
        msg = f"topic {topic!r}: a message is not the JSON that was expected: {error}"
        raise OptionError(msg) from error
    finally:
        consumer.close()


def _assign(consumer: Consumer, topic: str, timeout: float) -> set[int | None]:
    """Take all partitions, from their beginning; give their numbers."""
    from confluent_kafka import OFFSET_BEGINNING, KafkaException, TopicPartition  # noqa: PLC0415

    try:
        topics = consumer.list_topics(timeout=timeout).topics
    except KafkaException as error:
        msg = (
            f"no broker for topic {topic!r} within {timeout:g} s ({error.args[0]}): is it running?"
        )
        raise OptionError(msg) from error
    if topic not in topics:
        raise OptionError.unknown("topic", topic, topics)
    numbers = list(topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in numbers])
    return set(numbers)


def _next(consumer: Consumer, topic: str, timeout: float) -> list[Message]:
    """Give the messages that come next, ends of partitions among them."""
    from confluent_kafka import KafkaError  # noqa: PLC0415 - most do not need it

    until = monotonic() + timeout
    while monotonic() < until:
        if messages := consumer.consume(_AT_ONCE, timeout=0.2):
            errors = [error for message in messages if (error := message.error())]
            for error in errors:
                if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                    raise OptionError(f"topic {topic!r} cannot be read: {error.str()}")
            return messages
    raise OptionError(f"no further message of topic {topic!r} within {timeout:g} s; try again")
