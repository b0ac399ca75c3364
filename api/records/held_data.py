"""The amount of data that is stored about a device, and how long Kafka keeps messages."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from api.answers import Answer, Count, DoneAnswer, Record, Timestamp, timestamp
from catalog.erasure import DeviceData

_UNTIL = "When Kafka has deleted all messages of today; null where `kafka` is not `bounded`."


class KeptByKafkaAnswer(Answer):
    """Messages cannot be deleted one by one: topics delete them by age."""

    kafka: Literal["bounded", "unbounded", "unknown"] = Field(
        description="Whether topics delete messages by age; unknown if no broker reports it."
    )
    kafka_until: Timestamp | None = Field(description=_UNTIL)


class HeldDataAnswer(KeptByKafkaAnswer):
    detections: Count = Field(description="Traces of detections.")
    authentications: Count = Field(description="Traces of authentications.")
    presences: Count = Field(description="Beacons at which it was last seen.")
    keys: Count = Field(
        description="Claims, the last decisions, and a copy of the record, in Redis."
    )


class ForgottenAnswer(HeldDataAnswer, DoneAnswer):
    """The amount of deleted data."""


def shown_held(data: DeviceData, now: datetime) -> Record:
    """The data in the form of the interface."""
    kafka, longest = "unknown", data.kafka.longest
    if data.kafka.is_known:
        kafka = "unbounded" if longest is None else "bounded"
    return {
        "detections": data.rows.detections,
        "authentications": data.rows.authentications,
        "presences": data.rows.presences,
        "keys": data.keys,
        "kafka": kafka,
        "kafka_until": None if longest is None else timestamp(now + longest),
    }
