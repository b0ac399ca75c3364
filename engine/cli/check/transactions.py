"""DELIVERY=exactly_once: checks whether the login may use the transactional ids of the roles.

Nothing is created. The request has an invalid transaction timeout. A broker checks the rights first
and the timeout second, so its error says whether the rights are missing.
"""

from collections.abc import Iterator
from typing import Any

from aiokafka.errors import IncompatibleBrokerVersion, KafkaError
from aiokafka.protocol.transaction import InitProducerIdRequest

from engine.cli.check.finding import Finding, bad, ok, warning
from engine.kafka.broker_connection import any_broker
from engine.kafka.exactly_once import transactional_id
from engine.kafka.topics import Topics
from engine.process.settings import Settings
from engine.wiring.kafka import role_group

_PART = "Kafka"
_NO_TIME = 0
_TIME_REFUSED, _FORBIDDEN = 50, 53


async def check_transactions(settings: Settings) -> list[Finding]:
    """Send one request for each role and topic. Each takes at most 5 s."""
    if settings.delivery != "exactly_once":
        return []
    try:
        async with any_broker(settings) as broker:
            return [await _request(broker, ids, first) for ids, first in _ids(settings)]
    except (IncompatibleBrokerVersion, NotImplementedError):
        return [bad(_PART, "transactional ids", "these brokers know no transactions")]
    except (KafkaError, OSError, TimeoutError) as error:
        return [bad(_PART, "transactional ids", f"no answer ({type(error).__name__})")]


def _ids(settings: Settings) -> Iterator[tuple[str, str]]:
    """A text that names the ids of a role for a topic, and the first of the ids."""
    topics = Topics.of(settings)
    read = [("trigger", name) for name in topics.all_detections]
    for role, topic in (*read, ("connector", topics.connector_calls)):
        group = role_group(settings, role)
        yield f"transactional ids {group}-{topic}-*", transactional_id(group, topic, 0)


async def _request(broker: Any, ids: str, first: str) -> Finding:
    answer = await broker.send(InitProducerIdRequest(first, _NO_TIME))
    return _finding(ids, answer.error_code)


def _finding(subject: str, error: int) -> Finding:
    if error == _TIME_REFUSED:
        return ok(_PART, subject, "write")
    if error == _FORBIDDEN:
        return bad(_PART, subject, "this login may not write them, as exactly_once does")
    return warning(_PART, subject, f"the broker does not report rights (error {error})")
