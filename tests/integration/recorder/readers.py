"""The recorder's readers over a ledger, as its wiring builds them."""

from typing import Any

from engine.kafka.dead_letter_limit import DeadLetterLimit
from engine.kafka.dead_letters import DeadLetterPublisher
from engine.kafka.detection_decoder import OwnFormatDecoder
from engine.kafka.publisher import Outgoing
from engine.process.metrics import Metrics
from engine.recorder.authentications import AuthenticationReader
from engine.recorder.detections import DetectionReader, Trace
from engine.recorder.ledger import Ledger
from engine.recorder.local_days import DayRule
from engine.recorder.notifications import NotificationReader
from tests.servers.compiled import compiled

DETECTIONS, NOTIFICATIONS, AUTHENTICATIONS = "detections", "notifications", "authentications"


class Letters:
    """Collects dead letters in place of the brokers."""

    def __init__(self) -> None:
        self.reasons: list[bytes] = []

    async def publish(self, messages: list[Outgoing]) -> None:
        self.reasons += [dict(message.headers)["reason"] for message in messages]


def readers_over(
    ledger: Ledger,
    metrics: Metrics,
    letters: Any,
    rule: DayRule,
    *,
    trace: Trace = "all",
    oldest_delivery: float | None = None,
    in_columns: bool = False,
) -> dict[str, Any]:
    """A reader a topic. `oldest_delivery` is the greatest age of notifications, else the rule's;
    `in_columns`: detections are read by the compiled modules."""
    dead_letters = DeadLetterPublisher(topic="dead", publisher=letters, metrics=metrics)
    limit = DeadLetterLimit(share=1, run=10_000)
    skipped = metrics.recorder_skipped
    detections: dict[str, Any] = {
        "decoder": OwnFormatDecoder(path_loss_exponent=2.0),
        "trace": trace,
        "skipped": skipped,
        "rule": rule,
    }
    return {
        DETECTIONS: _column_reader(**detections) if in_columns else DetectionReader(**detections),
        NOTIFICATIONS: NotificationReader(
            ledger=ledger,
            dead_letters=dead_letters,
            limit=limit,
            skipped=skipped,
            rule=rule._replace(max_age=oldest_delivery or rule.max_age),
        ),
        AUTHENTICATIONS: AuthenticationReader(
            ledger=ledger, dead_letters=dead_letters, limit=limit, rule=rule
        ),
    }


def _column_reader(**more: Any) -> Any:
    scanner = compiled("engine.recorder.detection_batch").DetectionScanner(2.0)
    from engine.recorder.detection_columns import ColumnDetectionReader

    return ColumnDetectionReader(scanner=scanner, **more)
