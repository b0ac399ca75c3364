"""What becomes of a call with its result: the message that leaves, the claim that is settled."""

from typing import Any

import msgspec

from connectors.model import CallFault, CallResult, Content, Declined, Failed
from connectors.reports import PastCall
from connectors.scheduled_call import Tries
from engine.connector.intake import ReceivedCall
from engine.kafka.dead_letters import DeadLetter, DeadLetterReason
from engine.kafka.messages import Firing, Notification
from engine.kafka.publisher import Outgoing
from engine.kafka.topics import Topics
from engine.redis.claim_settlement import Settlement
from engine.redis.devices import KnownToCatalog, completed

DECLINED_SECONDS = 60

_encode = msgspec.json.Encoder().encode
_SHARED_FIELDS = tuple(
    name for name in Firing.__struct_fields__ if name not in ("device", "title", "push")
)


class CompletedCall(msgspec.Struct, gc=False):
    """A call and its result. `known` is what the catalog says of the device, if it says anything.

    `outcome` is the label that it is counted under. `tries` where there were any.
    """

    asked: ReceivedCall
    known: KnownToCatalog | None
    result: CallResult
    tries: Tries | None = None

    def remembered(self, now: float) -> PastCall:
        """What the company's account holders are told of it. `now` in epoch seconds."""
        result, message = self.result, self.asked.message
        tries, seconds, status = self.tries or Tries()
        return PastCall(
            at=now,
            id=message.id,
            campaign=message.campaign.id,
            outcome=self.outcome,
            detail=result.detail if isinstance(result, Failed) else "",
            status=status,
            seconds=seconds,
            tries=tries,
        )

    @property
    def outcome(self) -> str:
        """published, declined, or the fault."""
        if isinstance(self.result, Failed):
            return self.result.fault.value
        return "declined" if isinstance(self.result, Declined) else "published"

    def unpublishable(self, size: int) -> "CompletedCall":
        """The same call when its topic does not take its notification of `size` bytes."""
        detail = f"the notification would have {size} bytes"
        return CompletedCall(
            self.asked, self.known, Failed(CallFault.TOO_LARGE, detail), self.tries
        )


def message_of(answered: CompletedCall, topics: Topics, now: float) -> Outgoing | None:
    """The message that leaves, if one does. `now` in epoch seconds."""
    asked, result = answered.asked, answered.result
    if isinstance(result, Content):
        return _notification(asked, answered.known, result, topics.notifications)
    if isinstance(result, Failed):
        letter = DeadLetter(asked.record, DeadLetterReason(result.fault.value), result.detail)
        return letter.outgoing(topics.dead_letters, now)
    return None


def settlement(answered: CompletedCall) -> Settlement | None:
    """What becomes of the claim: kept for content, shortened for a refusal, given back for a
    failure. None: nothing to do."""
    message = answered.asked.message
    keep = 0 if isinstance(answered.result, Failed) else DECLINED_SECONDS
    if isinstance(answered.result, Content) or message.delay <= keep:
        return None
    return Settlement(
        campaign_id=message.campaign.id,
        udid=message.device.udid,
        owner=answered.asked.owner,
        detected_at=answered.asked.detected_at,
        delay=message.delay,
        keep=keep,
    )


def _notification(
    asked: ReceivedCall, known: KnownToCatalog | None, content: Content, topic: str
) -> Outgoing:
    message = asked.message
    shared: dict[str, Any] = {name: getattr(message, name) for name in _SHARED_FIELDS}
    notification = Notification(
        **shared,
        **{content.format: content.content},  # type: ignore[arg-type]
        format=content.format,
        title=message.title if content.title is None else content.title,
        push=message.push if content.push is None else content.push,
        device=completed(message.device, known),
    )
    headers = [("id", message.id.encode()), ("campaign", b"%d" % message.campaign.id)]
    return Outgoing(topic, message.device.udid.encode(), _encode(notification), headers)
