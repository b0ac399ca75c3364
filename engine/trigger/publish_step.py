"""The step `publish`: the brokers acknowledge the messages of grants."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.kafka.dead_letters import DeadLetterPublisher
from engine.kafka.publisher import Publisher
from engine.process.metrics import Metrics
from engine.trigger.claim_step import ClaimStep
from engine.trigger.counts import count_sent
from engine.trigger.decision_sums import DecisionSums
from engine.trigger.grants import GrantMessage
from engine.trigger.turn_messages import TurnMessages


@dataclass(frozen=True, kw_only=True)
class PublishStep:
    """Publishes and counts. `clock` gives epoch seconds.

    `sums` is None where decisions are not added up.
    """

    letters: DeadLetterPublisher
    claims: ClaimStep
    metrics: Metrics
    sums: DecisionSums | None
    clock: Callable[[], float]

    def publishing_with(self, publisher: Publisher) -> "PublishStep":
        """The same step with another publisher."""
        return replace(self, letters=self.letters.publishing_with(publisher))

    async def publish(self, sending: TurnMessages) -> None:
        """Publish and await the acknowledgements.

        A message that its topic refuses becomes a dead letter and returns its claim.
        """
        messages = sending.messages
        refused = await self.letters.publish_or_dead_letter(messages, sending.on_acknowledged)
        if refused:
            await self._give_back(refused, sending)
            without = {id(each) for each in refused}
            messages = [each for each in messages if id(each) not in without]
        for each in messages:
            if each.span is not None:
                each.span.end("published")
        sent = [each.grant for each in messages]
        count_sent(self.metrics, sent, self.clock())
        if self.sums is not None:
            self.sums.note_sent(sent)

    async def _give_back(self, refused: list[GrantMessage], sending: TurnMessages) -> None:
        for lane, messages in sending.by_lane(refused):
            await self.claims.give_back([each.grant for each in messages], lane.remembered)
        for each in refused:
            if each.span is not None:
                each.span.end("too_large")
