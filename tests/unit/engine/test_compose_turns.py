"""What one turn composes: how many messages, with which devices."""

import asyncio
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

import orjson
import pytest

from engine.kafka.batch_sender import message_size
from engine.redis.devices import DeviceKey, DeviceRecord
from engine.trigger.beacon_cache import IndexedBeacon
from engine.trigger.compose import Composer
from engine.trigger.grants import Grant, GrantMessage, grants_of
from engine.trigger.message_writer import MessageWriter
from rules.model import CampaignSnapshot, Reason
from rules.outcome import Decision
from tests.unit.engine.test_compose import BEACON, NOW, TOPICS, campaign, decoded

COMPANY = BEACON.venue.company_id
MANY = 10**6
FIRST, SECOND = campaign(id=1), campaign(id=2)
CALL = campaign(id=3, format="connector", content=None)


class DeviceTable:
    """Devices in memory. `requests` has the keys of each look-up."""

    def __init__(self, **names: str) -> None:
        self.requests: list[set[DeviceKey]] = []
        records = {udid: DeviceRecord(1, None, False, name=name) for udid, name in names.items()}
        self._known = {DeviceKey(COMPANY, udid): record for udid, record in records.items()}

    async def find(self, keys: Collection[DeviceKey]) -> Mapping[DeviceKey, DeviceRecord | None]:
        self.requests.append(set(keys))
        return {key: self._known.get(key) for key in keys}


def composer(devices: Any, turn_bytes: int = MANY) -> Composer:
    writer = MessageWriter(topics=TOPICS, lifetime=300)
    return Composer(writer=writer, devices=devices, turn_bytes=turn_bytes, clock=lambda: NOW)


def granted(udid: str, *campaigns: CampaignSnapshot) -> list[Grant]:
    """The grants of one detection of the device."""
    decision = Decision(Reason.GRANTED, granted=campaigns)
    indexed = IndexedBeacon(BEACON, campaigns, None)
    return grants_of(decoded(device={"udid": udid}), indexed, decision)


def names(messages: list[GrantMessage]) -> list[tuple[str, int, str | None]]:
    """The device, the campaign, and the device's name in the message."""
    found = []
    for each in messages:
        body = orjson.loads(each.message.value or b"")
        found.append((each.grant.udid, each.grant.campaign.id, body["device"].get("name")))
    return found


async def test_each_message_has_the_record_of_its_own_device() -> None:
    devices = DeviceTable(a="Anna", b="Ben")
    grants = deque([*granted("a", FIRST, SECOND), *granted("b", FIRST), *granted("c", FIRST)])
    messages = await composer(devices).compose_next(grants, 100)
    assert names(messages) == [("a", 1, "Anna"), ("a", 2, "Anna"), ("b", 1, "Ben"), ("c", 1, None)]
    assert devices.requests == [{DeviceKey(COMPANY, udid) for udid in "abc"}]
    assert not grants
    assert all(each.span is None for each in messages)
    assert {orjson.loads(each.message.value or b"")["triggered_at"] for each in messages} == {
        "2026-11-20T09:01:00+0000"
    }


async def test_calls_need_no_devices() -> None:
    devices = DeviceTable(a="Anna", b="Ben")
    await composer(devices).compose_next(deque(granted("a", CALL)), 100)
    assert devices.requests == []
    await composer(devices).compose_next(deque([*granted("a", CALL), *granted("b", FIRST)]), 100)
    assert devices.requests == [{DeviceKey(COMPANY, "b")}]


async def test_a_turn_takes_at_most_so_many_grants_and_looks_up_their_devices_only() -> None:
    devices = DeviceTable()
    grants = deque(each for udid in "abc" for each in granted(udid, FIRST))
    messages = await composer(devices).compose_next(grants, 2)
    assert [each.grant.udid for each in messages] == ["a", "b"]
    assert [each.udid for each in grants] == ["c"]
    assert devices.requests == [{DeviceKey(COMPANY, "a"), DeviceKey(COMPANY, "b")}]


async def test_a_turn_ends_with_the_message_that_reaches_its_bytes() -> None:
    (sample,) = await composer(DeviceTable()).compose_next(deque(granted("a", FIRST)), 1)
    size = message_size(sample.message)
    for turn_bytes, expected in (
        (1, 1),
        (size, 1),
        (size + 1, 2),
        (2 * size, 2),
        (2 * size + 1, 3),
    ):
        grants = deque(each for _ in range(5) for each in granted("a", FIRST))
        messages = await composer(DeviceTable(), turn_bytes).compose_next(grants, 100)
        assert (len(messages), len(grants)) == (expected, 5 - expected)


@pytest.mark.parametrize(("turn_bytes", "looked_up"), [(7, "a"), (8, "ab"), (16, "abc")])
async def test_devices_are_looked_up_for_the_content_of_a_turn(
    turn_bytes: int, looked_up: str
) -> None:
    """The contents are of eight characters; a grant is of the turn until they exceed its bytes."""
    devices = DeviceTable()
    sent = campaign(content="x" * 8)
    grants = deque(each for udid in "abcd" for each in granted(udid, sent))
    await composer(devices, turn_bytes).compose_next(grants, 100)
    assert devices.requests == [{DeviceKey(COMPANY, udid) for udid in looked_up}]


@pytest.mark.parametrize(("messages", "pauses"), [(63, 0), (64, 1), (127, 1), (128, 2)])
async def test_other_tasks_have_their_turn_after_64_messages(messages: int, pauses: int) -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    # Calls, because a look-up of devices would be a pause of its own.
    grants = deque(each for _ in range(messages) for each in granted("a", CALL))
    other = asyncio.create_task(count_turns())
    await composer(DeviceTable()).compose_next(grants, MANY)
    assert turns == pauses
    other.cancel()
