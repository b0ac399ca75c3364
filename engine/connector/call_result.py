"""What a result leads to: a message, an update of the claim, an entry in the history."""

from typing import Any

import msgspec
from aiokafka import ConsumerRecord

from connectors.model import CallFault, CallResult, Content, Declined, Failed
from connectors.reports import PastCall
from connectors.scheduled_call import Tries
from engine.connector.intake import ReceivedCall
from engine.kafka.batch_sender import Headers
from engine.kafka.dead_letters import DeadLetter, DeadLetterReason
from engine.kafka.messages import Firing, Notification
from engine.kafka.publisher import Outgoing
from engine.redis.claims import ClaimUpdate
from engine.redis.devices import DeviceRecord, completed_device

DECLINED_SECONDS = 60

_encode = msgspec.json.Encoder().encode
_COPIED_FIELDS = tuple(
    name for name in Firing.__struct_fields__ if name not in ("device", "title", "push")
)


class CompletedCall(msgspec.Struct, gc=False):
    """A call that has its result. `known` is the catalog's record of the device, if there is one;
    `tries` is None if the call was never scheduled. `trace` are the headers of the trace that it is
    part of."""

    received: ReceivedCall
    known: DeviceRecord | None
    result: CallResult
    tries: Tries | None = None
    trace: Headers = []  # (msgspec gives each its own)

    @property
    def record(self) -> ConsumerRecord[bytes, bytes]:
        return self.received.record

    @property
    def id(self) -> str:
        return self.received.message.id

    @property
    def company_id(self) -> int:
        return self.received.message.company.id

    @property
    def outcome(self) -> str:
        """The label that the call is counted under: published, declined, or the fault."""
        if isinstance(self.result, Failed):
            return self.result.fault.value
        return "declined" if isinstance(self.result, Declined) else "published"

    @property
    def content_size(self) -> int:
        """The characters of content that wait to be published."""
        return self.result.size if isinstance(self.result, Content) else 0

    def notification(self, topic: str) -> Outgoing | None:
        """The notification of a call that was answered with content."""
        content, message = self.result, self.received.message
        if not isinstance(content, Content):
            return None
        copied: dict[str, Any] = {name: getattr(message, name) for name in _COPIED_FIELDS}
        notification = Notification(
            **copied,
            **{content.format: content.content},  # type: ignore[arg-type]
            format=content.format,
            title=message.title if content.title is None else content.title,
            push=message.push if content.push is None else content.push,
            device=completed_device(message.device, self.known),
        )
        headers = [("id", message.id.encode()), ("campaign", b"%d" % message.campaign.id)]
        headers += self.trace
        udid = message.device.udid.encode()
        return Outgoing(topic, udid, _encode(notification), headers, self.record.timestamp)

    def dead_letter(self) -> DeadLetter | None:
        """The dead letter of a call that failed."""
        if not isinstance(self.result, Failed):
            return None
        return DeadLetter(
            self.record, DeadLetterReason(self.result.fault.value), self.result.detail
        )

    def too_large(self, size: int) -> "CompletedCall":
        """The same call, failed because its topic refuses its notification of `size` bytes."""
        detail = f"the notification would have {size} bytes"
        failed = Failed(CallFault.TOO_LARGE, detail)
        return CompletedCall(self.received, self.known, failed, self.tries, self.trace)

    def claim_update(self) -> ClaimUpdate | None:
        """Content keeps the claim as it is (None), a refusal shortens it, a failure gives it
        back."""
        message = self.received.message
        keep = 0 if isinstance(self.result, Failed) else DECLINED_SECONDS
        if isinstance(self.result, Content) or message.delay <= keep:
            return None
        return ClaimUpdate(
            campaign_id=message.campaign.id,
            udid=message.device.udid,
            owner=self.received.notification_id,
            detected_at=self.received.detected_at,
            delay=message.delay,
            keep=keep,
        )

    def past_call(self, now: float) -> PastCall:
        """The call as the company's account holders see it. `now` in epoch seconds."""
        tries, seconds, status = self.tries or Tries()
        return PastCall(
            at=now,
            id=self.id,
            campaign=self.received.message.campaign.id,
            outcome=self.outcome,
            detail=self.result.detail if isinstance(self.result, Failed) else "",
            status=status,
            seconds=seconds,
            tries=tries,
        )


class UndecodableRecord(msgspec.Struct, gc=False):
    """A record of connector-calls that is no call: it takes the same way as a CompletedCall."""

    letter: DeadLetter
    id: str = ""
    content_size: int = 0

    @property
    def record(self) -> ConsumerRecord[bytes, bytes]:
        return self.letter.record

    def dead_letter(self) -> DeadLetter:
        return self.letter

    def notification(self, topic: str) -> None:  # noqa: ARG002
        return None

    def claim_update(self) -> None:
        return None
