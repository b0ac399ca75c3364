"""What a company sets for all campaigns, and the fields of campaigns beside it."""

from typing import Any

from tests.api.harness import Bodies, Harness, Headers

RULES = "/profile/company"
UNSET: dict[str, Any] = {
    "time_zone": "",
    "caps": [],
    "quiet_hours": None,
    "presence": False,
    "visit_silence": None,
}
NIGHT = {"start": "22:00", "end": "08:00"}


async def put(api: Harness, owner: Headers, **fields: Any) -> Any:
    answer = await api.call("PUT", RULES, owner, fields)
    return answer.json().get("fields", answer.json())


async def test_the_rules_of_a_company(api: Harness, owner: Headers):
    before = await api.read(RULES, owner)
    assert before == before | UNSET
    caps = [{"max": 3, "per": "day"}, {"max": 10, "per": "P1W"}]
    rules = {"time_zone": "Europe/Paris", "caps": caps, "presence": True, "visit_silence": 60}
    quiet = NIGHT | {"weekdays": ["sunday", "monday"]}
    shown = before | rules | {"quiet_hours": NIGHT | {"weekdays": ["monday", "sunday"]}}
    assert await put(api, owner, **rules, quiet_hours=quiet) == shown
    assert await api.read(RULES, owner) == shown
    assert await put(api, owner) == shown
    assert await put(api, owner, **shown) == shown
    (entry,) = await api.read("/audit", owner)
    assert (entry["kind"], entry["before"]["caps"]) == ("company", [])
    assert entry["after"] == rules | {"quiet_hours": shown["quiet_hours"]}
    assert await put(api, owner, **UNSET) == before
    reader = await api.colleague(owner, profile=1)
    assert await api.read(RULES, reader) == before
    assert (await api.call("PUT", RULES, reader, {})).status_code == 403


async def test_quiet_hours_need_a_time_zone(api: Harness, owner: Headers, bodies: Bodies):
    assert [*await put(api, owner, quiet_hours=NIGHT)] == ["quiet_hours"]
    venue = await api.made("/region", owner, bodies.venue(time_zone="Europe/Paris"))
    assert (await put(api, owner, quiet_hours=NIGHT))["caps"] == []
    there = f"/region/{venue['id']}"
    without = bodies.venue(time_zone="")
    for method, path in (("PUT", there), ("POST", "/region")):
        assert [*await api.faults(method, path, owner, without)] == ["time_zone"]
    assert (await put(api, owner, time_zone="Europe/Paris"))["caps"] == []
    assert (await api.call("PUT", there, owner, without)).status_code == 200
    assert [*await put(api, owner, time_zone="")] == ["quiet_hours"]
    assert (await put(api, owner, time_zone="", quiet_hours=None))["quiet_hours"] is None


async def test_only_dwell_has_minutes(api: Harness, owner: Headers, bodies: Bodies, venue: int):
    path = f"/lieu/{venue}/campaign"
    for fields in ({"dwell_minutes": 5}, {"on": "exit", "dwell_minutes": 5}):
        faults = await api.faults("POST", path, owner, bodies.campaign(**fields))
        assert [*faults] == ["dwell_minutes"]
    made = await api.made(path, owner, bodies.campaign(on="dwell", dwell_minutes=5))
    where = f"{path}/{made['id']}"
    cases: list[tuple[dict[str, Any], int, int | None]] = [
        ({}, 200, 5),
        ({"dwell_minutes": 7}, 200, 7),
        ({"dwell_minutes": ""}, 400, 7),
        ({"on": "exit"}, 200, None),
        ({"dwell_minutes": 7}, 400, None),
    ]
    for fields, status, minutes in cases:
        answer = await api.call("PUT", where, owner, bodies.campaign(**fields))
        assert answer.status_code == status, fields
        assert (await api.read(where, owner))["dwell_minutes"] == minutes
