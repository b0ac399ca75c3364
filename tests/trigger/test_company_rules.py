"""Caps, priority and quiet hours in the trigger, through the production wiring."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import update

from catalog.models import Company, Device
from rules.model import Cap, QuietHours
from tests.redis.index_writer import beacon_entry, campaign_entry, connector_entry, rules_entry
from tests.rules.records import epoch
from tests.trigger.pushed import NOW, PushedTrigger, detection

MINUTE, HOUR = 60, 3600


async def sent(trigger: PushedTrigger) -> list[tuple[str, int]]:
    """The device and the campaign of each message, in order."""
    return [(each["device"]["udid"], each["campaign"]["id"]) for each in await trigger.sent()]


def reasons(trigger: PushedTrigger) -> Counter[str]:
    """Decisions of campaigns by reason."""
    names = ("granted", "throttled", "capped", "quiet_hours")
    return Counter({name: int(trigger.count("decisions_total", reason=name)) for name in names})


async def test_a_capped_device_costs_no_more_requests(trigger: PushedTrigger) -> None:
    rules = rules_entry(Cap(2, MINUTE), Cap(3, HOUR))
    await trigger.write_index(beacon_entry([7]) | campaign_entry(7) | rules)
    for seconds in range(10):
        await trigger.push(detection(seconds=seconds), detection(seconds=seconds + 0.5))
    assert await sent(trigger) == [("phone", 7)] * 2
    assert reasons(trigger) == Counter(granted=2, capped=18)
    assert trigger.count("claims_total", outcome="denied") == 2  # of one cycle
    assert trigger.count("claims_total", outcome="held") == 0
    await trigger.push(detection(seconds=59.5), detection(seconds=60), detection(seconds=61))
    assert await sent(trigger) == [("phone", 7)] * 3
    await trigger.push(detection("other", seconds=62))
    assert Counter(await sent(trigger)) == {("phone", 7): 3, ("other", 7): 1}
    await trigger.write_index(rules_entry(Cap(2, MINUTE), Cap(4, HOUR)))  # more is allowed at once
    await trigger.push(detection(seconds=121), detection(seconds=122))
    assert Counter(await sent(trigger)) == {("phone", 7): 4, ("other", 7): 1}


async def test_a_call_has_the_caps_that_count_it(trigger: PushedTrigger) -> None:
    call = {"format": "connector", "content": None}
    fields = beacon_entry([7, 8]) | connector_entry("https://shop.example")
    fields |= campaign_entry(7, **call) | campaign_entry(8, ignores_caps=True, **call)
    await trigger.write_index(fields | rules_entry(Cap(1, HOUR)))
    await trigger.push(detection())
    calls = await trigger.sent("connector-calls")
    assert [each.get("caps") for each in calls] == [[[1, HOUR]], None]
    # It may give its place back, so the refusal is remembered for some seconds only.
    for seconds in (0, 1, 2, 3, 6):
        trigger.now = NOW / 1000 + seconds
        await trigger.push(detection(seconds=seconds + 0.5))
    assert trigger.count("claims_total", outcome="denied") == 2


# The clock of the trigger stands at 23:00 in Paris, 17:00 in New York and 07:00 in Tokyo.
TODAY = datetime(2026, 11, 20, tzinfo=UTC)
NIGHT = epoch("2026-11-20T22:00:00Z")
QUIET = rules_entry(quiet_hours=QuietHours(1320, 480), time_zone="Europe/Paris")


def at_night(udid: str, seconds: float = 0, zone: str | None = None, **more: Any) -> bytes:
    device = {"udid": udid} | ({} if zone is None else {"time_zone": zone})
    return detection(seconds=NIGHT - NOW / 1000 + seconds, device=device, **more)


async def quiet(trigger: PushedTrigger) -> None:
    trigger.now = NIGHT
    fields = beacon_entry([7, 8]) | campaign_entry(7, delay=MINUTE)
    fields |= campaign_entry(8, ignores_quiet_hours=True, delay=HOUR)
    await trigger.write_index(fields | beacon_entry([7], minor=3) | QUIET)


async def test_the_zone_of_the_catalog_counts_as_it_is_now(trigger: PushedTrigger) -> None:
    await quiet(trigger)
    async with trigger.stores.database.write.begin() as session:
        session.add(Company(id=1, name="Harbour", create_on=TODAY))
        for udid, zone in (("away", "America/New_York"), ("tokyo", "Asia/Tokyo"), ("none", None)):
            session.add(
                Device(company_id=1, udid=udid, time_zone=zone, create_on=TODAY, update_on=TODAY)
            )
    await trigger.push(*(at_night(udid, minor=3) for udid in ("away", "tokyo", "none", "new")))
    assert await sent(trigger) == [("away", 7)]
    assert reasons(trigger) == Counter(granted=1, quiet_hours=3)
    # It has come home meanwhile.
    async with trigger.stores.database.write.begin() as session:
        await session.execute(update(Device).values(time_zone="Europe/Paris"))
    trigger.role.intake.devices._recent.clear()  # that of the last seconds
    await trigger.push(at_night("away", 61, minor=3))
    assert await sent(trigger) == [("away", 7)]
    assert reasons(trigger) == Counter(granted=1, quiet_hours=4)
