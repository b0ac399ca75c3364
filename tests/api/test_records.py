"""Records of a company: created, listed, changed, deleted, alone or as a list; its rules."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from sqlalchemy import func, select

from catalog.models import AuditEntry, Beacon, Tag
from tests.api.harness import Bodies, Harness, Headers, counted
from tests.api.test_tenancy import everything

DONE = {"status": "success", "code": 200}


async def lifecycle(
    api: Harness, owner: Headers, path: str, body: Any, change: dict[str, Any]
) -> dict[str, Any]:
    """Create, read, send back unchanged, list, edit and delete a record; returns it as created."""
    record = await api.made(path, owner, body)
    where = f"{path}/{record['id']}"
    back = await api.call("PUT", where, owner, record)
    assert (back.status_code, back.json()) == (200, record)
    assert await api.read(where, owner) == record
    assert await api.read(path, owner) == [record]
    edited = await api.call("PUT", where, owner, body | change)
    assert (edited.status_code, edited.json()) == (200, record | change)
    deleted = await api.call("DELETE", where, owner)
    assert (deleted.status_code, deleted.json()) == (200, DONE)
    assert (await api.call("DELETE", where, owner)).status_code == 404
    assert await api.read(path, owner) == []
    return record


async def test_beacons(api: Harness, owner: Headers, bodies: Bodies, venue: int):
    where = f"/region/{venue}/beacon"
    body = bodies.beacon(tags=[{"name": "one"}, "two", {"name": "one"}])
    record = await lifecycle(api, owner, where, body, {"proximity": "far"})
    tags = record["tags"]
    assert [tag["name"] for tag in tags] == ["one", "two"]
    assert record == body | {"id": record["id"], "tags": tags}
    again = await api.made(where, owner, body)
    for change, shown in (
        ({"tags": [{"id": tags[1]["id"]}, {"name": "three"}]}, ["two", "three"]),
        ({"color": None}, ["two", "three"]),
    ):
        required = {n: body[n] for n in ("name", "uuid", "major", "minor", "active", "proximity")}
        edited = (await api.call("PUT", f"{where}/{again['id']}", owner, required | change)).json()
        assert [tag["name"] for tag in edited["tags"]] == shown
    assert (edited["color"], edited["x"]) == ("", again["x"])


async def test_targets_of_another_venue_are_refused(
    api: Harness, owner: Headers, bodies: Bodies, venue: int
):
    there = (await api.made("/region", owner, bodies.venue()))["id"]
    fence = await api.made(f"/region/{there}/geofencing", owner, bodies.geofence())
    nfc = await api.made(f"/region/{there}/nfc", owner, bodies.tag())
    mine = await api.made(f"/region/{venue}/nfc", owner, bodies.tag())
    for field, record in (("geofencings", fence), ("nfcs", nfc), ("qrcodes", mine)):
        body = bodies.campaign() | {field: [record["id"]]}
        assert [*await api.faults("POST", f"/lieu/{venue}/campaign", owner, body)] == [
            f"{field}[0]"
        ]


async def test_campaigns(api: Harness, owner: Headers, bodies: Bodies, venue: int):
    beacon = await api.made(f"/region/{venue}/beacon", owner, bodies.beacon())
    fence = await api.made(f"/region/{venue}/geofencing", owner, bodies.geofence())
    tag = await api.made(f"/region/{venue}/nfc", owner, bodies.tag())
    triple = {name: beacon[name] for name in ("uuid", "major", "minor")}
    body = bodies.campaign(
        beacons=[triple, beacon["id"]],
        geofencings=[{"id": fence["id"]}],
        nfcs=[{"id": tag["id"]}],
        hash="h1",
    )
    change = {"active": False, "cache": "week", "on": "dwell", "dwell_minutes": 5, "priority": 9}
    record = await lifecycle(api, owner, f"/lieu/{venue}/campaign", body, change)
    optional = dict.fromkeys(("template", "html", "background", "color"), "")
    assert record == body | optional | {
        "id": record["id"],
        "tags": beacon["tags"],
        "beacons": [beacon],
        "geofencings": [fence],
        "nfcs": [{"id": tag["id"], "name": tag["name"]}],
        "qrcodes": [],
        "warnings": [],
        "on": "detection",
        "dwell_minutes": None,
        "priority": 5,
        "ignores_caps": False,
        "ignores_quiet_hours": False,
    }
    nothing = await api.made(f"/lieu/{venue}/campaign", owner, bodies.campaign(tags=None))
    assert len(nothing["warnings"]) == 1


async def test_applications(api: Harness, owner: Headers):
    body = {"name": "app", "type": "android", "api_key": "chosen by a caller", "api_id": None}
    change = {"api_key": "", "active": False, "expire_on": "2027-01-01T00:00:00+0000"}
    record = await api.made("/profile/application", owner, body)
    key = record["api_key"]
    assert (len(key), record["active"], record["expire_on"]) == (32, True, None)
    path = f"/profile/application/{record['id']}"
    edited = (await api.call("PUT", path, owner, body | change)).json()
    assert edited == record | change | {"api_key": key}
    assert (await api.call("PUT", path, owner, {"name": "app", "type": "android"})).json() == edited


async def test_connector(api: Harness, owner: Headers, bodies: Bodies):
    body = bodies.connector(auth="GET", method="post", secret="whsec_1234567890")
    assert (await api.call("GET", "/connector", owner)).status_code == 404
    record = (await api.call("PUT", "/connector", owner, body)).json()
    expected = {"id": record["id"], "auth": "get", "method": "POST", "signed": True}
    assert record == {name: body[name] for name in ("name", "url", "parameters")} | expected
    assert await api.read("/connector", owner) == record
    changed = bodies.connector(secret=None, parameters=[{"key": "k", "value": "v"}])
    edited = (await api.call("PUT", "/connector", owner, changed)).json()
    assert edited["parameters"] == '[{"key": "k", "value": "v"}]'
    assert (edited["id"], edited["signed"]) == (record["id"], True)
    unsigned = await api.call("PUT", "/connector", owner, changed | {"secret": None})
    assert unsigned.json()["signed"] is False
    private = body | {"url": "http://10.0.0.1/"}
    assert [*await api.faults("PUT", "/connector", owner, private)] == ["url"]
    answers = await asyncio.gather(*(api.call("DELETE", "/connector", owner) for _ in range(6)))
    assert sorted(each.status_code for each in answers) == [200, *[404] * 5]


async def test_lists_are_searched_sorted_and_counted(
    api: Harness, owner: Headers, bodies: Bodies, venue: int
):
    where = f"/region/{venue}/beacon"
    for name, active in (("b 100%", True), ("a", False), ("B 1000", True)):
        await api.made(where, owner, bodies.beacon(name=name, active=active))
    await api.made(f"/lieu/{venue}/campaign", owner, bodies.campaign())
    for query, total, expected in (
        ("sort=name&limit=2", 3, ["B 1000", "a"]),
        ("sort=-minor&offset=1", 3, ["a", "b 100%"]),
        ("search=b%20&sort=-name", 2, ["b 100%", "B 1000"]),
        ("search=0%25", 1, ["b 100%"]),
        ("active=false&limit=1", 1, ["a"]),
        ("", 3, ["b 100%", "a", "B 1000"]),
        ("limit=1&after=1", 3, ["a"]),
        ("limit=2&after=3", 3, []),
    ):
        answer = await api.call("GET", f"{where}?{query}", owner)
        assert [record["name"] for record in answer.json()] == expected, query
        assert answer.headers["x-total"] == str(total), query
    for path in ("/region", f"/lieu/{venue}/campaign?sort=-start"):
        assert (await api.call("GET", path, owner)).headers["x-total"] == "1"
    for path, field in ((f"{where}?sort=venue_id", "sort"), ("/crm?active=true", "active")):
        assert [*await api.faults("GET", path, owner, None)] == [field]


async def test_several_are_changed_or_none(
    api: Harness, owner: Headers, bodies: Bodies, venue: int
):
    where = f"/region/{venue}/beacon"
    one, two = [await api.made(where, owner, bodies.beacon(tags=[])) for _ in range(2)]
    other = await api.made("/region", owner, bodies.venue())
    there = await api.made(f"/region/{other['id']}/beacon", owner, bodies.beacon())
    before = await everything(api)
    for changed, faults in (
        ([one | {"name": ""}, {"name": "X"}], {"[0].name", "[1].uuid"}),
        ([one, two | {"id": there["id"]}], {"[1].id"}),
        ([one, two | {"minor": there["minor"]}], {"[1].minor"}),
        ([one | {"name": "New"}, two | {"tags": [{"id": 9999}]}], {"[1].tags[0]"}),
    ):
        status = 409 if faults == {"[1].minor"} else 400
        assert faults <= (await api.faults("PUT", where, owner, changed, status)).keys()
    changed = [two | {"name": "Two"}, one | {"tags": ["new"]}]
    for method, path, body, status in (  # dry runs store nothing
        ("PUT", where, changed, 200),
        ("PUT", f"{where}/{one['id']}", one | {"name": "New", "tags": ["new"]}, 200),
        ("POST", where, [bodies.beacon()], 201),
    ):
        assert (await api.call(method, f"{path}?dry=true", owner, body)).status_code == status
    assert await everything(api) == before
    answer = (await api.call("PUT", where, owner, changed)).json()
    assert [(each["id"], each["name"]) for each in answer] == [
        (two["id"], "Two"),
        (one["id"], one["name"]),
    ]
    assert sorted(answer, key=lambda each: each["id"]) == await api.read(where, owner)


async def test_one_of_thirty_gets_the_triple(api: Harness, bodies: Bodies):
    holders = [await api.account() for _ in range(2)]
    venues = [(await api.made("/region", holder, bodies.venue()))["id"] for holder in holders]

    async def create(number: int) -> int:
        mine = number % 2
        body = bodies.beacon(minor=7, name=f"beacon of {number}", tags=[f"tag {number}", "same"])
        path = f"/region/{venues[mine]}/beacon"
        return (await api.call("POST", path, holders[mine], body)).status_code

    statuses = await asyncio.gather(*map(create, range(30)))
    assert Counter(statuses) == {201: 1, 409: 29}
    async with api.database.read() as session:
        (beacon,) = await session.scalars(select(Beacon))
        tags = set(await session.scalars(select(Tag.name)))
    assert tags == {beacon.name.replace("beacon of", "tag"), "same"}


async def test_edits_and_deletions_at_once(
    api: Harness, owner: Headers, bodies: Bodies, venue: int
):
    path = f"/region/{venue}/beacon"
    record = await api.made(path, owner, bodies.beacon())
    one = f"{path}/{record['id']}"
    calls = [api.call(method, one, owner, record) for method in ("PUT", "DELETE") * 8]
    answers = await asyncio.gather(*calls)
    assert {each.status_code for each in answers} <= {200, 404}
    assert (await api.call("GET", one, owner)).status_code == 404


TAGS = [{"name": "new"}, "other"]


@pytest.mark.parametrize("kind", ["beacon", "geofencing", "nfc", "qrcode"])
async def test_all_are_made(api: Harness, owner: Headers, bodies: Bodies, venue: int, kind: str):
    make = {"beacon": bodies.beacon, "geofencing": bodies.geofence}.get(kind, bodies.tag)
    path, given = f"/region/{venue}/{kind}", [make(tags=TAGS) for _ in range(150)]
    with counted(api.database) as statements:
        answer = await api.call("POST", path, owner, given)
        assert answer.status_code == 201, answer.text
        made = answer.json()
        again = [each | {"name": f"new {each['id']}"} for each in made]
        assert (await api.call("PUT", path, owner, again)).json() == again
    # SQLite inserts one by one; nothing else is done for each record.
    once = [each for each in statements if "SELECT" in each or "audit" in each]
    assert len(once) < 40
    assert [each["name"] for each in made] == [each["name"] for each in given]
    assert {tag["name"] for tag in made[-1]["tags"]} == {"new", "other"}
    assert await api.read(path, owner) == again
    async with api.database.read() as session:
        assert await session.scalar(select(func.count(Tag.id))) == 2
        audited = (await session.scalars(select(AuditEntry.ref).order_by(AuditEntry.id))).all()
    assert audited[1:] == 2 * [each["id"] for each in made]


async def test_one_fault_refuses_all(api: Harness, owner: Headers, bodies: Bodies, venue: int):
    path = f"/region/{venue}/beacon"
    no_lists: list[Any] = [[], [3], [{}] * 1001]
    for none in no_lists:
        for where in (path, "/region"):  # a venue is made alone
            assert [*await api.faults("POST", where, owner, none)] == ["body"]
    good = bodies.beacon(minor=1)
    bad = [good, good | {"minor": 2, "name": ""}, good | {"minor": "a"}]
    assert [*await api.faults("POST", path, owner, bad)] == ["[1].name", "[2].minor"]
    again = [good, bodies.beacon(minor=2), bodies.beacon(minor=1)]
    assert await api.faults("POST", path, owner, again, 409) == {"[2].minor": "taken"}
    assert await api.read(path, owner) == []
    await api.made(path, owner, good)
    two = [bodies.beacon(minor=2), good]
    assert await api.faults("POST", path, owner, two, 409) == {"[1].minor": "taken"}
    assert len(await api.read(path, owner)) == 1


async def test_a_value_is_unique_in_company_and_kind(
    api: Harness, owner: Headers, bodies: Bodies, venue: int
):
    tag, other = bodies.tag(), await api.account()
    there = (await api.made("/region", other, bodies.venue()))["id"]
    path = f"/region/{venue}/nfc"
    for where, who in (
        (path, owner),
        (f"/region/{venue}/qrcode", owner),
        (f"/region/{there}/nfc", other),
    ):
        assert (await api.call("POST", where, who, [tag])).status_code == 201
    assert await api.faults("POST", path, owner, [tag], 409) == {"[0].value": "taken"}
    taken = await api.call("POST", path, owner, tag)
    assert (taken.status_code, taken.json()["message"]) == (409, "the value is taken")
    second = await api.made(path, owner, bodies.tag())
    assert (await api.call("PUT", f"{path}/{second['id']}", owner, tag)).status_code == 409


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
    for fields in ({"on": "dwell"}, {"dwell_minutes": 5}, {"on": "exit", "dwell_minutes": 5}):
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
