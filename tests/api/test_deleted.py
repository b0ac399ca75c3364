"""Past data keeps the names of deleted records."""

from datetime import UTC, datetime

import pytest

from catalog.models import DetectionTrace, Device, Statistic
from tests.api.harness import Bodies, Harness, Headers

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize("kind", ["venue", "beacon"])
async def test_traces_and_statistics_keep_names(
    api: Harness, owner: Headers, bodies: Bodies, venue: int, kind: str
):
    """Those of another company's device name nothing."""
    inside = {"beacon": f"/region/{venue}/beacon", "campaign": f"/lieu/{venue}/campaign"}
    made = {"venue": await api.read(f"/region/{venue}", owner)}
    made["beacon"] = await api.made(inside["beacon"], owner, bodies.beacon(tags=["door"]))
    made["campaign"] = await api.made(inside["campaign"], owner, bodies.campaign(tags=["door"]))

    async def detected(headers: Headers) -> int:
        company = await api.company_of(headers)
        device = Device(company_id=company, udid="phone", create_on=NOW, update_on=NOW)
        await api.add(device)
        of = {"device_id": device.id, "venue_id": venue, "beacon_id": made["beacon"]["id"]}
        await api.add(DetectionTrace(**of, status="near", create_on=NOW))
        return int(device.id)

    stranger = await api.account()
    mine, theirs = await detected(owner), await detected(stranger)
    for each, record in made.items():
        of = {"day": NOW.date(), "kind": each, "ref": record["id"], "venue_id": venue}
        await api.add(Statistic(**of, detections=1, devices=1, notifications=1))
    figures = "/statistics?from=2026-11-01&to=2026-11-30"
    lines = await api.read(figures, owner)
    (trace,) = (await api.read(f"/crm/{mine}", owner))["beacon"]
    assert [line["name"] for line in lines] == [record["name"] for record in made.values()]
    gone = f"/region/{venue}" + (f"/beacon/{made['beacon']['id']}" if kind == "beacon" else "")
    for path in (f"{inside['campaign']}/{made['campaign']['id']}", gone):
        assert (await api.call("DELETE", path, owner)).status_code == 200
    assert await api.read(figures, owner) == lines
    (after,) = (await api.read(f"/crm/{mine}", owner))["beacon"]
    assert after == trace
    (received,) = (await api.read(f"/crm/{theirs}", stranger))["beacon"]
    assert (received["lieu"], received["beacon"]) == ("", {"id": made["beacon"]["id"]})
