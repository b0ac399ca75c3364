"""POST /lieu/{id}/campaign/{uid}/explain: why a campaign does not fire, and when it would."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx
import pytest

from engine.process.metrics import Metrics
from engine.process.settings import Settings
from engine.redis.claims import NOT_COUNTED, Claims, DeviceRequests, pack_request
from tests.api.harness import Bodies, Harness, Headers

LATE = "2026-11-21T23:30:00+0100"  # a Saturday; the example is open from 9 to 20, not on Sundays
OPEN = "2026-11-24T10:00:00+0100"


@dataclass
class CampaignToExplain:
    """A venue with a campaign that targets one of its beacons by a tag."""

    api: Harness
    owner: Headers
    bodies: Bodies
    venue: int
    beacon: dict[str, Any]
    campaign: dict[str, Any]

    async def explain(self, headers: Headers | None = None, **body: Any) -> httpx.Response:
        path = f"/lieu/{self.venue}/campaign/{self.campaign['id']}/explain"
        return await self.api.call("POST", path, headers or self.owner, body)

    async def result(self, **body: Any) -> dict[str, Any]:
        answer = await self.explain(**body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def edit_campaign(self, **fields: Any) -> None:
        path = f"/lieu/{self.venue}/campaign/{self.campaign['id']}"
        body = self.bodies.campaign() | fields
        assert (await self.api.call("PUT", path, self.owner, body)).status_code == 200


@pytest.fixture
async def explained(api: Harness, owner: Headers, bodies: Bodies, venue: int) -> CampaignToExplain:
    beacon = await api.made(f"/region/{venue}/beacon", owner, bodies.beacon())
    campaign = await api.made(f"/lieu/{venue}/campaign", owner, bodies.campaign())
    return CampaignToExplain(api, owner, bodies, venue, beacon, campaign)


def failed(result: dict[str, Any]) -> dict[str, str]:
    """What the checks that fail found."""
    return {each["check"]: each["found"] for each in result["checks"] if not each["passed"]}


async def test_the_reason_the_values_and_the_next_moment(explained: CampaignToExplain):
    result = await explained.result(at=LATE)
    assert (result["at"], result["reason"], result["proximity"]) == (LATE, "outside_hours", "near")
    assert result["beacon"]["id"] == explained.beacon["id"]
    assert result["campaign"]["name"] == explained.campaign["name"]
    assert failed(result) == {"outside_hours": "Saturday 23:30 in Europe/Madrid"}
    assert result["next_at"] == "2026-11-23T09:00:00+0100"
    assert (await explained.result(at=result["next_at"]))["reason"] == "granted"
    assert [each["check"] for each in result["checks"]] == [
        *("unknown_beacon", "inactive_venue", "inactive_beacon", "no_campaign"),
        *("unknown_proximity", "too_far", "stale", "future"),
        *("inactive", "not_started", "ended", "wrong_weekday", "outside_hours", "throttled"),
    ]


async def test_another_place_and_another_distance(explained: CampaignToExplain):
    api, owner, bodies = explained.api, explained.owner, explained.bodies
    other = await api.made(f"/region/{explained.venue}/beacon", owner, bodies.beacon(tags=[]))
    tag = await api.made(f"/region/{explained.venue}/nfc", owner, bodies.tag())
    shown = {"id": tag["id"], "name": tag["name"]}
    assert (await explained.result(at=OPEN, proximity="far"))["reason"] == "too_far"
    triple = {name: other[name] for name in ("uuid", "major", "minor")}
    for beacon in (triple, {"id": other["id"]}):
        result = await explained.result(at=LATE, beacon=beacon)
        assert (result["reason"], result["beacon"]["id"]) == ("no_campaign", other["id"])
        assert [*failed(result)] == ["no_campaign", "outside_hours"]
    result = await explained.result(at=OPEN, nfc=tag["id"])
    assert (result["reason"], result["nfc"], result["beacon"]) == ("no_campaign", shown, None)
    refused = await explained.explain(beacon=explained.beacon["id"], nfc=tag["id"])
    assert (refused.status_code, list(refused.json()["fields"])) == (400, ["nfc"])
    await explained.edit_campaign(tags=[])
    result = await explained.result(at=OPEN)
    assert (result["reason"], result["beacon"], result["next_at"]) == ("no_campaign", None, None)
    assert "unknown_beacon" not in {each["check"] for each in result["checks"]}
    await explained.edit_campaign(tags=[], nfcs=[tag["id"]])
    result = await explained.result(at=OPEN)
    assert (result["reason"], result["nfc"]) == ("granted", shown)


async def test_a_claim_of_the_device(explained: CampaignToExplain, settings: Settings):
    at = datetime.fromisoformat(OPEN).timestamp()
    owner = uuid.UUID("0c5ab8a2-9f0e-5d0b-9c43-3a8a1f1d6a52")
    claims = Claims(
        redis=explained.api.stores.redis,
        prefix=settings.redis_prefix,
        retain=600.0,
        deadline=5.0,
        metrics=Metrics(),
    )
    packed = pack_request(
        explained.campaign["id"], owner.bytes, int(at - 812) * 1000, 86_400_000, NOT_COUNTED
    )
    assert (await claims.take([DeviceRequests("phone", packed)], at)).forbidden_by == [[0]]
    result = await explained.result(at=OPEN, udid="phone")
    assert result["reason"] == "throttled"
    assert result["claim"] == {
        "notification": str(owner),
        "detected_at": "2026-11-24T09:46:28+0100",
        "ends_at": "2026-11-25T09:46:28+0100",
    }
    assert failed(result) == {"throttled": "claimed at 2026-11-24T09:46:28+0100, 23 h 46 min left"}
    assert result["next_at"] == "2026-11-25T09:46:28+0100"
    assert (await explained.result(at=result["next_at"], udid="phone"))["reason"] == "granted"
    for _ in range(2):  # nothing is taken
        assert (await explained.result(at=OPEN, udid="another"))["reason"] == "granted"


async def test_reading_campaigns_is_enough_but_a_device_needs_its_level(
    explained: CampaignToExplain,
):
    reader = await explained.api.colleague(explained.owner, campaign=1, crm=0)
    assert (await explained.explain(reader, at=OPEN)).status_code == 200
    refused = await explained.explain(reader, at=OPEN, udid="phone")
    assert refused.status_code == 403
    assert refused.json()["message"] == "needs level 1 in the permission area crm"


async def test_another_companys_beacon_does_not_exist(explained: CampaignToExplain, bodies: Bodies):
    api, stranger = explained.api, await explained.api.account()
    venue = (await api.made("/region", stranger, bodies.venue()))["id"]
    theirs = await api.made(f"/region/{venue}/beacon", stranger, bodies.beacon())
    refused = await explained.explain(beacon=theirs["id"])
    assert (refused.status_code, [*refused.json()["fields"]]) == (400, ["beacon"])
