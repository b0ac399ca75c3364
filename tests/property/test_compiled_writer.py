"""The compiled writer takes the same grants as the plain one, and writes the same messages.

(test_fragments.py compares both with the types of messages.)
"""

from collections import deque
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.kafka.detections import decode_record
from engine.kafka.topics import Topics
from engine.kafka.tracing import PassingTracer
from engine.trigger.beacon_cache import IndexedBeacon
from engine.trigger.grants import Grant, grants_of
from engine.trigger.message_writer import MessageWriter
from rules.model import Reason
from rules.outcome import Decision
from tests.servers.compiled import compiled
from tests.unit.engine import records
from tests.unit.engine.test_compose import BEACON, NOW, campaign

SENT = (
    campaign(id=1),
    campaign(id=2, format="connector", content=None),
    campaign(id=3, content="x" * 900),
    campaign(id=3, content="another version"),
)
TRACED = (("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),)


def of_detection(offset: int, udid: str, wanted: int, traced: bool) -> list[Grant]:
    body = records.detection(device={"udid": udid}, detected_at=1_795_165_200_000 + offset)
    record = replace(records.record(body, offset=offset), headers=TRACED if traced else ())
    decision = Decision(Reason.GRANTED, granted=SENT[:wanted])
    return grants_of(decode_record(record, 2.0), IndexedBeacon(BEACON, SENT, None), decision)


@given(
    made=st.lists(
        st.tuples(st.sampled_from(["a", "b", "\u00e9"]), st.integers(1, 4), st.booleans()),
        max_size=6,
    ),
    most=st.integers(1, 12),
    most_bytes=st.integers(1, 6000),
)
def test_both_write_the_same(made: list[tuple[str, int, bool]], most: int, most_bytes: int) -> None:
    grants = [
        grant
        for offset, (udid, wanted, traced) in enumerate(made)
        for grant in of_detection(offset, udid, wanted, traced)
    ]
    check(grants, most, most_bytes)


@pytest.mark.parametrize("more", [0, 1])
def test_both_end_with_the_message_that_reaches_the_bytes(more: int) -> None:
    grants = of_detection(1, "a", 1, traced=False) * 3
    one = check(grants, 1, 1)
    assert check(grants, 3, one + more) == one * (1 + more)


def check(grants: list[Grant], most: int, most_bytes: int) -> int:
    """Both write the same messages, take the same grants, and count the same bytes."""
    module = compiled("engine.trigger.compiled_writer")
    found = []
    for writer in (MessageWriter, module.CompiledMessageWriter):
        left = deque(grants)
        made_by = writer(topics=Topics.named("p."), lifetime=300.5, tracer=PassingTracer())
        messages, size = made_by.write(left, {}, NOW + 0.75, most, most_bytes)
        spans = [each.span is None or each.span.headers for each in messages]
        found.append(([(each.message, each.grant) for each in messages], spans, size, left))
    assert found[0] == found[1]
    return size
