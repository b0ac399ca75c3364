"""The step `publish`: the brokers acknowledge the messages of grants."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.kafka.dead_letters import DeadLetterPublisher
from engine.kafka.publisher import Publisher
from engine.process.metrics import Metrics
from engine.trigger.claim_memory import RememberedClaims
from engine.trigger.claim_step import ClaimStep
from engine.trigger.counts import count_sent
from engine.trigger.decision_sums import DecisionSums
from engine.trigger.grants import GrantMessage


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

    async def publish(self, messages: list[GrantMessage], remembered: RememberedClaims) -> None:
        """Publish and await the acknowledgements.

        A message that its topic refuses becomes a dead letter and returns its claim.
        """
        refused = await self.letters.publish_or_dead_letter(messages)
        if refused:
            await self.claims.give_back([each.grant for each in refused], remembered)
            for each in refused:
                if each.span is not None:
                    each.span.end("too_large")
            without = {id(each) for each in refused}
            messages = [each for each in messages if id(each) not in without]
        for each in messages:
            if each.span is not None:
                each.span.end("published")
        sent = [each.grant for each in messages]
        count_sent(self.metrics, sent, self.clock())
        if self.sums is not None:
            self.sums.note_sent(sent)
