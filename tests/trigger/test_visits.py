"""Visits in the trigger: messages of presence, campaigns that fire on them, crashes."""

from typing import Any

import pytest

from engine.kafka.offsets import Position
from engine.redis.visits import VisitsTakenOverError, VisitStore
from engine.trigger.partition import TriggerPartition
from rules.geofences import Circle
from rules.model import Cap, Zone
from rules.visits import VisitBook
from tests.redis.index_writer import (
    application_entry,
    beacon_entry,
    campaign_entry,
    circles_entry,
    geofence_entry,
    rules_entry,
    tag_entry,
)
from tests.trigger.pushed import NOW, PushedTrigger, detection, located

VISITS = rules_entry(tracks_visits=True)
HERE = {"latitude": 48.8584, "longitude": 2.2945}


@pytest.fixture
async def mall(trigger: PushedTrigger) -> PushedTrigger:
    """A beacon with a campaign for each moment of a visit."""
    await trigger.write_index(
        VISITS
        | beacon_entry([7, 8, 9, 10, 11], reach=Zone.NEAR)
        | campaign_entry(7)
        | campaign_entry(8, on="enter")
        | campaign_entry(9, on="dwell", dwell_minutes=1)
        | campaign_entry(10, on="dwell", dwell_minutes=2)
        | campaign_entry(11, on="exit")
    )
    return trigger


async def told(trigger: PushedTrigger) -> list[tuple[str, str]]:
    """The type and the kind of place of each message of presence, in order."""
    found = await trigger.sent("presence")
    return [(each["type"], each["place"]["kind"]) for each in found]


async def stay(trigger: PushedTrigger, *seconds: float, **fields: Any) -> None:
    """The phone is detected at these seconds after NOW, each as it happens."""
    for second in seconds:
        trigger.now = NOW / 1000 + second
        await trigger.push(detection(seconds=second, **fields))


async def pass_time(trigger: PushedTrigger, seconds: float) -> None:
    """The topic is at its end so many seconds after NOW."""
    trigger.now = NOW / 1000 + seconds
    trigger.worker.note_lag(0, trigger.now)
    await trigger.until_finished()


async def test_a_visit_from_enter_to_exit(mall: PushedTrigger) -> None:
    await stay(mall, *range(0, 125, 25))
    await pass_time(mall, 131)
    found = await mall.sent("presence")
    assert [(each["type"], each["place"]) for each in found] == [
        ("enter", {"kind": "beacon", "id": 1, "name": "Desk"}),
        ("enter", {"kind": "venue", "id": 1, "name": "Library"}),
        ("dwell", {"kind": "beacon", "id": 1, "name": "Desk"}),
        ("exit", {"kind": "beacon", "id": 1, "name": "Desk"}),
    ]
    exit_ = found[-1]
    assert exit_["cause"] == "silence"
    assert (exit_["duration_seconds"], exit_["detections"]) == (100, 5)
    assert exit_["entered_at"] == found[0]["entered_at"]
    assert exit_["exited_at"] == exit_["last_seen"]
    assert len({each["id"] for each in found}) == len(found)
    assert len({each["visit_id"] for each in found}) == 2
    sent = await mall.sent("notifications")
    assert [each["campaign"]["id"] for each in sent if "on" not in each] == [7] * 5
    fired = [(each["campaign"]["id"], each["on"]) for each in sent if "on" in each]
    assert fired == [(8, "enter"), (9, "dwell"), (11, "exit")]
    assert {each["visit_id"] for each in sent if "on" in each} == {exit_["visit_id"]}
    assert mall.count("visits_total", kind="beacon", type="exit") == 1
    assert mall.count("visits_open") == 1
    await pass_time(mall, 221)
    assert (await told(mall))[-1] == ("exit", "venue")
    assert mall.count("visits_open") == 0
    assert mall.count("decisions_total", reason="not_entered") == 4 * 5


async def test_what_is_taken_in_together_fires_in_the_order_of_records_and_priority(
    trigger: PushedTrigger,
) -> None:
    """A cap leaves one place to each device: to the entry, and to the exit that came before."""
    await trigger.write_index(
        rules_entry(Cap(1, 3600), tracks_visits=True)
        | beacon_entry([7, 8], reach=Zone.NEAR)
        | beacon_entry([9], minor=3, id=3)
        | beacon_entry([10], minor=4, id=4)
        | campaign_entry(7, priority=0)
        | campaign_entry(8, on="enter")
        | campaign_entry(9)
        | campaign_entry(10, on="exit")
    )
    trigger.now += 60
    there = detection("other", minor=4), detection("other", minor=3, seconds=40)
    await trigger.push(detection(), detection(minor=3, seconds=1), *there)
    sent = await trigger.sent()
    assert {(each["device"]["udid"], each["campaign"]["id"]) for each in sent} == {
        ("phone", 8),
        ("other", 10),
    }


async def test_companies_that_ask_for_nothing_cost_nothing(trigger: PushedTrigger) -> None:
    await trigger.write_index(beacon_entry([7]) | campaign_entry(7))
    await stay(trigger, 0, 10)
    await pass_time(trigger, 500)
    assert await told(trigger) == []
    assert not await trigger.redis.keys("*visits*")


async def test_who_has_lost_the_partition_writes_no_more(mall: PushedTrigger) -> None:
    await stay(mall, 0)
    lost, mall.worker = mall.worker, mall.assigned()
    await stay(mall, 10)
    lost.offer(mall.records([detection("other")]))
    mall.worker, current = lost, mall.worker
    with pytest.raises(VisitsTakenOverError):
        await mall.until_finished()
    assert {each["device"]["udid"] for each in await mall.sent("presence")} == {"phone"}
    mall.worker = current
    await pass_time(mall, 41)
    assert (await told(mall))[-1] == ("exit", "beacon")


async def test_what_a_transaction_published_is_kept_until_it_is_committed(
    mall: PushedTrigger,
) -> None:
    mall.publisher.is_open = True
    await stay(mall, 0, 10)
    await mall.worker.abandon()  # which aborts the transaction
    mall.worker = mall.assigned()
    await stay(mall, 20)
    assert await told(mall) == [("enter", "beacon"), ("enter", "venue")] * 2


async def test_a_topic_that_is_another_begins_anew(mall: PushedTrigger) -> None:
    def assigned(topic_id: str) -> None:
        mall.worker = TriggerPartition(
            mall.partition, Position(0, topic_id), lambda: None, role=mall.role
        )

    await mall.worker.abandon()
    assigned("a")
    await stay(mall, 0)
    await mall.worker.finish(5)
    assigned("b")
    await stay(mall, 10)
    assert await told(mall) == [("enter", "beacon"), ("enter", "venue")] * 2


async def test_a_place_that_was_edited_ends_its_visits(mall: PushedTrigger) -> None:
    await stay(mall, 0)
    del mall.writer.fields[next(each for each in mall.writer.fields if each[0] == "b")]
    await mall.write_index({})
    await pass_time(mall, 31)
    last = (await mall.sent("presence"))[-1]
    assert (last["type"], last["cause"], last["place"]["name"]) == ("exit", "edited", "")
    assert last["venue"] == {"id": 1, "name": ""}


async def test_positions_and_reports_end_visits_of_geofences(trigger: PushedTrigger) -> None:
    await trigger.write_index(
        VISITS
        | application_entry("ours")
        | circles_entry(Circle(4, HERE["latitude"], HERE["longitude"], 50.0))
        | geofence_entry(4, [], radius=50.0, **HERE)
        | tag_entry([])
    )
    qr = {"kind": "qrcode", "value": "https://example.org/poster"}
    trigger.now += 300
    await trigger.push(located(0, tag=qr))
    assert await told(trigger) == [("enter", "venue")]
    await trigger.push(located(5, position=HERE))
    beyond = HERE | {"latitude": 48.8594}  # 111 m away
    await trigger.push(located(10, position=beyond | {"accuracy": 70}))
    assert (await told(trigger))[1:] == [("enter", "geofence")]
    await trigger.push(located(15, position=beyond | {"accuracy": 50}))
    await trigger.push(located(20, geofence={"id": 4, "transition": "enter"}))
    await trigger.push(located(25, geofence={"id": 4, "transition": "exit"}))
    await trigger.push(located(24, geofence={"id": 4, "transition": "dwell"}))  # late
    found = (await trigger.sent("presence"))[2:]
    assert [(each["type"], each.get("cause")) for each in found] == [
        ("exit", "signal"),
        ("enter", None),
        ("exit", "reported"),
    ]
    assert trigger.count("visits_total", kind="geofence", type="late") == 1


async def test_time_moves_with_other_records_where_the_end_is_not_reached(
    mall: PushedTrigger,
) -> None:
    await stay(mall, 0)
    await stay(mall, 29, minor=99)
    mall.worker.note_lag(1, mall.now)
    await mall.until_finished()
    assert len(await told(mall)) == 2
    await stay(mall, 31, minor=99)
    mall.worker.note_lag(1, mall.now)
    await mall.until_finished()
    assert (await told(mall))[-1] == ("exit", "beacon")


async def test_all_visits_of_a_partition_may_end_at_once(trigger: PushedTrigger) -> None:
    """Redis takes a million arguments at most."""
    options = {"redis": trigger.redis, "prefix": "", "deadline": 60.0}
    store = VisitStore(trigger.worker.partition, None, metrics=trigger.metrics, **options)
    await store.save(VisitBook(), 7, [], [bytes(16)] * 1_100_000)
    assert await store.load(VisitBook()) == (7, [])
