"""What a process that was killed between its claims and its messages leaves to the next one."""

import json

import pytest

from engine.kafka.detections import decode_record
from engine.redis.claims import ClaimRequest, Claims
from engine.trigger.grants import notification_id
from rules.model import Campaign
from tests.contract.index_writer import PREFIX, beacon_entry, campaign_entry
from tests.integration.engine.pushed import NOW, PushedTrigger, Record, detection
from tests.unit.rules.records import campaign

DELAY = 3


def request(of: Record, chosen: Campaign) -> ClaimRequest:
    decoded = decode_record(of, 2.0)
    return ClaimRequest(
        chosen.id, "phone", notification_id(decoded, chosen), decoded.detected_at, DELAY
    )


@pytest.mark.parametrize(
    "batches", [[[0, 1, 2, 3, 4]], [[0, 1], [2, 3], [4]], [[n] for n in range(5)]]
)
@pytest.mark.parametrize("claimed", [0, 1, 3, 5])
async def test_every_claim_that_was_taken_is_taken_again(
    trigger: PushedTrigger, batches: list[list[int]], claimed: int
) -> None:
    """Whatever part of its claims the killed process had taken, and however they are delivered."""
    chosen = campaign(id=7, delay=DELAY)
    await trigger.write_index(beacon_entry([7]) | campaign_entry(7, delay=DELAY))
    # Granted, too soon, granted, too soon, granted.
    records = trigger.records(detection(seconds=seconds) for seconds in (0, 1, 4, 5, 8))
    killed = Claims(
        redis=trigger.redis, prefix=PREFIX, retain=600, deadline=5, metrics=trigger.metrics
    )
    await killed.take([request(each, chosen) for each in records[:claimed]], NOW / 1000)

    worker = trigger.worker
    for batch in batches:
        worker.offer([records[n] for n in batch])
        await trigger.until_finished()
    await worker.finish(5)
    assert worker.failure is None
    assert worker.done_offset == len(records)

    out = [json.loads(each.value or b"") for each in await trigger.left("notifications")]
    expected = [notification_id(decode_record(records[n], 2.0), chosen).hex() for n in (0, 2, 4)]
    assert [body["id"].replace("-", "") for body in out] == expected
