"""POST /lieu/{id}/campaign/{uid}/explain: why a campaign does not fire, and when it would."""

import time
import uuid
from datetime import datetime
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from api.records.explanation import ExplanationAnswer
from catalog.models import Account, Company
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from engine.redis.claims import ClaimRequest, Claims
from tests.integration.api.bodies import Bodies
from tests.integration.api.harness import Harness, Headers

LATE = "2026-11-21T23:30:00+0100"  # a Saturday; the example is open from 9 to 20, not on Sundays
OPEN = "2026-11-24T10:00:00+0100"


@pytest.fixture
async def owner(api: Harness) -> Headers:
    return await api.account()


class CampaignToExplain:
    """A venue with a campaign that targets one of its beacons by a tag."""

    def __init__(self, api: Harness, owner: Headers, bodies: Bodies) -> None:
        self.api = api
        self.owner = owner
        self.bodies = bodies
        self.venue = 0
        self.beacon: dict[str, Any] = {}
        self.campaign: dict[str, Any] = {}

    async def made(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self.api.call("POST", path, self.owner, body)
        assert answer.status_code == 201, answer.text
        record: dict[str, Any] = answer.json()
        return record

    async def setup(self) -> "CampaignToExplain":
        self.venue = (await self.made("/region", self.bodies.venue()))["id"]
        self.beacon = await self.made(f"/region/{self.venue}/beacon", self.bodies.beacon())
        self.campaign = await self.made(f"/lieu/{self.venue}/campaign", self.bodies.campaign())
        return self

    async def ask(self, headers: Headers | None = None, **body: Any) -> httpx.Response:
        path = f"/lieu/{self.venue}/campaign/{self.campaign['id']}/explain"
        return await self.api.call("POST", path, headers or self.owner, body)

    async def told(self, **body: Any) -> dict[str, Any]:
        answer = await self.ask(**body)
        assert answer.status_code == 200, answer.text
        record: dict[str, Any] = answer.json()
        assert set(record) == set(ExplanationAnswer.model_fields)
        return record

    async def edit_campaign(self, **fields: Any) -> None:
        path = f"/lieu/{self.venue}/campaign/{self.campaign['id']}"
        body = self.bodies.campaign() | fields
        assert (await self.api.call("PUT", path, self.owner, body)).status_code == 200


@pytest.fixture
async def asked(api: Harness, owner: Headers, bodies: Bodies) -> CampaignToExplain:
    return await CampaignToExplain(api, owner, bodies).setup()


def failed(told: dict[str, Any]) -> dict[str, str]:
    """What the checks that fail found."""
    return {each["check"]: each["found"] for each in told["checks"] if not each["passed"]}


async def test_the_reason_the_values_and_the_next_moment(asked: CampaignToExplain):
    told = await asked.told(at=LATE)
    assert (told["at"], told["reason"], told["proximity"]) == (LATE, "outside_hours", "near")
    assert told["beacon"]["id"] == asked.beacon["id"]
    assert told["campaign"] == {"id": asked.campaign["id"], "name": asked.campaign["name"]}
    assert failed(told) == {"outside_hours": "Saturday 23:30 in Europe/Madrid"}
    assert told["next_at"] == "2026-11-23T09:00:00+0100"
    assert (await asked.told(at=told["next_at"]))["reason"] == "granted"
    before = await asked.told(at="2026-11-23T08:59:59+0100")
    assert before["reason"] == "outside_hours"
    assert [each["check"] for each in told["checks"]] == [
        *("unknown_beacon", "inactive_venue", "inactive_beacon", "no_campaign"),
        *("unknown_proximity", "too_far", "stale", "future"),
        *("inactive", "not_started", "ended", "wrong_weekday", "outside_hours", "throttled"),
    ]


async def test_now_when_nothing_is_asked(asked: CampaignToExplain):
    told = await asked.told()
    assert abs(datetime.fromisoformat(told["at"]).timestamp() - time.time()) < 60
    assert told["claim"] is None


async def test_the_last_edit_counts_at_once(asked: CampaignToExplain):
    assert (await asked.told(at=OPEN))["reason"] == "granted"
    await asked.edit_campaign(active=False)
    told = await asked.told(at=OPEN)
    assert (told["reason"], told["next_at"]) == ("inactive", None)
    assert told["blocked_by"] == ["inactive"]
    await asked.edit_campaign(format="connector", start="2027-03-01T00:00:00+0100")
    told = await asked.told(at=OPEN)
    assert (told["reason"], told["next_at"]) == ("not_started", None)
    assert told["blocked_by"] == ["no_connector"]
    await asked.api.call("PUT", "/connector", asked.owner, asked.bodies.connector())
    # (Its content is not in the index yet: it will be by then.)
    assert (await asked.told(at=OPEN))["next_at"] == "2027-03-01T09:00:00+0100"


async def test_another_beacon_and_another_distance(asked: CampaignToExplain):
    path = f"/region/{asked.venue}/beacon"
    off = await asked.made(path, asked.bodies.beacon(active=False))
    other = await asked.made(path, asked.bodies.beacon(tags=[]))
    assert (await asked.told(at=OPEN, proximity="far"))["reason"] == "too_far"
    assert (await asked.told(at=OPEN, proximity="Unknown"))["reason"] == "unknown_proximity"
    told = await asked.told(at=OPEN, beacon={"id": off["id"]})
    assert (told["reason"], told["beacon"]["id"]) == ("inactive_beacon", off["id"])
    triple = {name: other[name] for name in ("uuid", "major", "minor")}
    told = await asked.told(at=LATE, beacon=triple)
    assert told["reason"] == "no_campaign"
    assert failed(told) == {
        "no_campaign": "not targeted",
        "outside_hours": "Saturday 23:30 in Europe/Madrid",
    }
    await asked.edit_campaign(tags=[])
    told = await asked.told(at=OPEN)
    assert (told["reason"], told["beacon"], told["next_at"]) == ("no_campaign", None, None)
    assert "unknown_beacon" not in {each["check"] for each in told["checks"]}


async def test_a_claim_of_the_device(asked: CampaignToExplain, settings: Settings):
    at = datetime.fromisoformat(OPEN).timestamp()
    owner = uuid.UUID("0c5ab8a2-9f0e-5d0b-9c43-3a8a1f1d6a52")
    claims = Claims(
        redis=asked.api.stores.redis,
        prefix=settings.redis_prefix,
        retain=600.0,
        deadline=5.0,
        metrics=Metrics(),
    )
    request = ClaimRequest(asked.campaign["id"], "phone", owner.bytes, at - 812, 86_400)
    assert await claims.take([request], at) == [None]
    told = await asked.told(at=OPEN, udid="phone")
    assert told["reason"] == "throttled"
    assert told["claim"] == {
        "notification": str(owner),
        "detected_at": "2026-11-24T09:46:28+0100",
        "ends_at": "2026-11-25T09:46:28+0100",
    }
    assert failed(told) == {"throttled": "claimed at 2026-11-24T09:46:28+0100, 23 h 46 min left"}
    assert told["next_at"] == "2026-11-25T09:46:28+0100"
    assert (await asked.told(at=told["next_at"], udid="phone"))["reason"] == "granted"
    assert (await asked.told(at=OPEN, udid="another"))["reason"] == "granted"
    # Nothing was taken.
    assert (await asked.told(at=OPEN, udid="another"))["claim"] is None


async def test_reading_is_enough_and_a_device_needs_its_own_level(asked: CampaignToExplain):
    company = await company_of(asked)
    reader = await asked.api.account(company, campaign=1, crm=0)
    assert (await asked.ask(reader, at=OPEN)).status_code == 200
    refused = await asked.ask(reader, at=OPEN, udid="phone")
    assert refused.status_code == 403
    assert refused.json()["message"] == "needs level 1 in the permission area crm"
    nobody = await asked.api.account(company, campaign=0)
    assert (await asked.ask(nobody, at=OPEN)).status_code == 403


async def test_another_companys_records_do_not_exist(asked: CampaignToExplain, bodies: Bodies):
    stranger = await asked.api.account()
    assert (await asked.ask(stranger, at=OPEN)).status_code == 404
    theirs = CampaignToExplain(asked.api, stranger, bodies)
    await theirs.setup()
    refused = await asked.ask(beacon=theirs.beacon["id"])
    assert refused.status_code == 400
    assert set(refused.json()["fields"]) == {"beacon"}
    theirs.campaign = asked.campaign
    assert (await theirs.ask(at=OPEN)).status_code == 404


async def test_what_is_wrong_is_named(asked: CampaignToExplain):
    refused = await asked.ask(at="Saturday", beacon="desk", proximity="close", udid="")
    assert refused.status_code == 400
    assert set(refused.json()["fields"]) == {"at", "beacon", "proximity", "udid"}


async def company_of(asked: CampaignToExplain) -> Company:
    async with asked.api.database.read() as session:
        query = select(Company).join(Account, Account.company_id == Company.id)
        found = await session.scalar(query.where(Account.email == asked.owner["x-service-key"]))
    assert found is not None
    return found
