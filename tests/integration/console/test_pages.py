"""What pages say, and what their forms do."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select

from catalog.models import WEEKDAYS, Account, Device, Statistic
from tests.integration.api.bodies import Bodies
from tests.integration.api.harness import Harness
from tests.integration.console.visitor import SeenPage, Visitor
from tests.servers.http_service import replying, serving

NOW = datetime.now(UTC)
ALWAYS = {"start_time": "00:00", "end_time": "24:00", **dict.fromkeys(WEEKDAYS, True)}
YEARS = {"start": "2020-01-01T00:00:00+0100", "end": "2090-01-01T00:00:00+0100"}


@pytest.fixture
async def venue(visitor: Visitor, bodies: Bodies) -> int:
    return await visitor.made("/region", bodies.venue(name="Pier", time_zone="Europe/Paris"))


async def campaign_with(visitor: Visitor, bodies: Bodies, venue: int, **other: Any) -> int:
    body = bodies.campaign(**ALWAYS | YEARS | other)
    return await visitor.made(f"/lieu/{venue}/campaign", body)


async def test_each_campaign_has_its_state_now(visitor: Visitor, bodies: Bodies, venue: int):
    where = f"/region/{venue}/beacon"
    on = await visitor.made(where, bodies.beacon(tags=[]))
    off = await visitor.made(where, bodies.beacon(active=False, tags=[]))
    tomorrow = NOW + timedelta(days=1, hours=1)
    begins = {"start": f"{tomorrow:%Y-%m-%dT%H:%M:%S%z}"}
    for name, other in (
        ("Sends", {"beacons": [{"id": on}]}),
        ("Is aimed at no beacon", {}),
        ("Its beacons are switched off", {"beacons": [{"id": off}]}),
        ("Switched off", {"beacons": [{"id": on}], "active": False}),
        ("Ended", {"beacons": [{"id": on}], "end": "2021-01-01T00:00:00+0100"}),
        ("Opens ", {"beacons": [{"id": on}], **begins}),
    ):
        given = {"tags": [], "name": f"about: {name}", **other}
        await campaign_with(visitor, bodies, venue, **given)
    page = await visitor.get(f"/venues/{venue}/campaigns")
    names = [text.removeprefix("about: ") for text in page.texts if text.startswith("about: ")]
    said = (await visitor.get(f"/venues/{venue}/campaigns/states")).texts
    assert len(said) == 6
    assert [text[: len(name)] for text, name in zip(said, names, strict=True)] == names
    overview = await visitor.get("/parts/silent")
    assert "about: Ended" in overview.texts
    assert "about: Sends" not in overview.texts


async def test_a_campaign_is_made_and_changed(visitor: Visitor, bodies: Bodies, venue: int):
    beacon = await visitor.made(f"/region/{venue}/beacon", bodies.beacon(tags=["door"]))
    new = f"/venues/{venue}/campaigns/new"
    given = {
        "name": "Last boat",
        "title": "At six",
        "push": "Tickets here",
        "format": "url",
        "url": "https://pier.example/",
        "cache": "2 hours",
        "start_day": "2030-07-01",
        "end_day": "2030-12-31",
        "start_time": "09:00",
        "end_time": "18:00",
        "monday": "1",
        "friday": "1",
        "active": "1",
        "beacons": str(beacon),
        "tags": "door, quay",
    }
    wrong = await visitor.post(new, given | {"url": "", "start_time": "9 o'clock", "cache": "x"})
    page = SeenPage(wrong.text)
    problems = {tag.get("id"): tag for _, tag in page.tags if tag.get("class") == "problem"}
    assert problems.keys() == {"url-said", "start_time-said", "cache-said"}
    assert page.field("start_day") == "2030-07-01"
    made = await visitor.post(new, given)
    assert made.status_code == 303, made.text
    number = int(made.headers["location"].rpartition("/")[2])
    path = f"/lieu/{venue}/campaign/{number}"
    stored = (await visitor.api.call("GET", path, visitor.headers)).json()
    assert stored["start"] == "2030-07-01T00:00:00+0200"
    assert stored["end"] == "2030-12-31T00:00:00+0100"
    assert [day for day in WEEKDAYS if stored[day]] == ["monday", "friday"]
    assert [each["id"] for each in stored["beacons"]] == [beacon]
    assert [each["name"] for each in stored["tags"]] == ["door", "quay"]
    # What the form shows, sent back, changes nothing; instants keep the offset they were given.
    precise = stored | {"start": "2030-07-01T08:30:00+0500"}
    await visitor.api.call("PUT", path, visitor.headers, precise)
    form = await visitor.get(f"/venues/{venue}/campaigns/{number}")
    assert form.field("start_day") == "2030-07-01"
    kept = {"start": form.field("start"), "end": form.field("end")}
    await visitor.post(f"/venues/{venue}/campaigns/{number}", given | kept)
    assert (await visitor.api.call("GET", path, visitor.headers)).json() == precise
    await visitor.post(f"/venues/{venue}/campaigns/{number}/delete", {})
    assert (await visitor.api.call("GET", path, visitor.headers)).status_code == 404


async def test_would_it_fire(visitor: Visitor, bodies: Bodies, venue: int):
    beacon = await visitor.made(f"/region/{venue}/beacon", bodies.beacon(tags=["study"]))
    hours = {"start_time": "09:00", "end_time": "18:00"}
    number = await campaign_with(visitor, bodies, venue, **hours)
    path = f"/venues/{venue}/campaigns/{number}/explain"
    asked = {"at": "2030-07-01T12:00", "zone": "Europe/Paris", "beacon": str(beacon)}
    told = SeenPage((await visitor.post(path, asked)).text).text
    assert told.startswith("It would fire 2030-07-01 12:00:00 (UTC+02:00)")
    late = asked | {"at": "2030-07-01T20:00", "udid": "anna"}
    told = SeenPage((await visitor.post(path, late)).text).text
    assert told.startswith("It would not not at this hour")
    assert "Next at 2030-07-02 09:00:00 (UTC+02:00)." in told
    wrong = await visitor.post(path, asked | {"beacon": "999999"})
    assert "refusal" in wrong.text


async def test_the_week_of_what_is_typed(visitor: Visitor):
    night = {"start_time": "22:00", "end_time": "02:00", "saturday": "1"}
    week = SeenPage((await visitor.post("/calendar", night)).text)
    drawn = [found for tag, found in week.tags if tag == "rect" and found["class"] == "open"]
    saturday, sunday = drawn
    assert (saturday["x"], saturday["width"]) == (str(40 + 1320 / 3), "40.0")
    assert (sunday["x"], sunday["width"]) == ("40.0", "40.0")
    assert SeenPage((await visitor.post("/calendar", {"start_time": "x"})).text).tags == []


async def test_places(visitor: Visitor, bodies: Bodies, venue: int):
    own = f"/venues/{venue}"
    beacon = {
        "name": "Door",
        "uuid": "f7826da64fa24e988024bc5b71e0893e",
        "major": "1",
        "minor": "70000",
        "proximity": "near",
        "active": "1",
        "x": "-3",
        "tags": "a,b",
    }
    refused = await visitor.post(f"{own}/beacons/new", beacon)
    assert "minor-said" in refused.text
    made = await visitor.post(f"{own}/beacons/new", beacon | {"minor": "7"})
    assert made.headers["location"] == f"/console{own}"
    (stored,) = (await visitor.api.call("GET", f"/region/{venue}/beacon", visitor.headers)).json()
    assert (stored["x"], stored["y"], stored["minor"]) == (-3, None, 7)
    place = f"{own}/beacons/{stored['id']}/place"
    moved = await visitor.post(place, {"x": "4", "y": "9"})
    assert moved.status_code == 200
    assert moved.json() == stored | {"x": 4, "y": 9}
    assert (await visitor.post(place, {"x": "a", "y": "9"})).status_code == 400
    plan = await visitor.get(own)
    assert [dot["transform"] for tag, dot in plan.tags if tag == "g"] == ["translate(4 9)"]
    fence = {"name": "Quay", "latitude": "43,2", "longitude": "5.3", "radius": "0", "active": "1"}
    assert "radius-said" in (await visitor.post(f"{own}/geofences/new", fence)).text
    await visitor.post(f"{own}/geofences/new", fence | {"radius": "300"})
    assert "43.2" in (await visitor.get(own)).texts
    await visitor.post(f"{own}/beacons/{stored['id']}/delete", {})
    await visitor.post(f"{own}/delete", {})
    assert "No venue yet." in (await visitor.get("/venues")).texts


async def test_a_venue_is_made_and_changed(visitor: Visitor):
    given = {"name": "Depot", "address": "Quai", "time_zone": "Mars/Base", "active": "1"}
    assert "time_zone-said" in (await visitor.post("/venues/new", given)).text
    made = await visitor.post("/venues/new", given | {"time_zone": "Europe/Paris", "width": "20"})
    path = made.headers["location"].removeprefix("/console")
    changed = {"name": "Depot 2", "address": "", "width": "30"}
    await visitor.post(f"{path}/edit", changed)
    record = (await visitor.api.call("GET", f"/region/{path[8:]}", visitor.headers)).json()
    assert (record["name"], record["width"], record["active"]) == ("Depot 2", 30, False)


async def device_of(visitor: Visitor, udid: str) -> int:
    async with visitor.api.database.write.begin() as session:
        query = select(Account.company_id).where(Account.email == visitor.session.email)
        company = await session.scalar(query)
        made = Device(company_id=company, udid=udid, create_on=NOW, update_on=NOW)
        session.add(made)
        await session.flush()
        return made.id


async def test_a_device(visitor: Visitor):
    numbers = [await device_of(visitor, f"phone-{number}") for number in range(60)]
    first = await visitor.get("/devices")
    (following,) = [link for link in first.links() if "after=" in link]
    second = await visitor.get(following.removeprefix("/console"))
    shown = {link for link in first.links() | second.links() if "/devices/" in link}
    assert shown == {f"/console/devices/{number}" for number in numbers}
    found = await visitor.client.get("/console/devices?udid=phone-7")
    assert found.headers["location"] == f"/console/devices/{numbers[7]}"
    assert "No device has this udid." in (await visitor.get("/devices?udid=phone")).texts
    path = f"/devices/{numbers[7]}"
    assert "Mark as test device" in (await visitor.get(path)).texts
    await visitor.post(f"{path}/test", {"test": "1"})
    assert "Test device" in (await visitor.get(path)).texts
    await visitor.post(f"{path}/test", {})
    assert "Mark as test device" in (await visitor.get(path)).texts
    assert "No decision within the last day." in (await visitor.get(f"{path}/decisions")).texts
    await visitor.get("/devices/999999", status=404)


async def test_a_connector(visitor: Visitor):
    assert "Call once" not in (await visitor.get("/connector")).texts
    reply = replying(body={"format": "html", "html": "<p>Hello</p>"})
    async with serving(reply) as service:
        given = {
            "name": "Offers",
            "url": service.url(),
            "method": "POST",
            "auth": "header",
            "key": ["x-api-key", ""],
            "value": ["abc", ""],
            "secret": "a signing secret",
        }
        first = given | {"is_new": "1", "url": "http://169.254.169.254/"}
        wrong = await visitor.post("/connector", first)
        assert "url-said" in wrong.text
        assert "Call once" not in wrong.text
        assert (await visitor.post("/connector", given)).status_code == 303
        page = await visitor.get("/connector")
        assert "One is stored; leave it empty to keep it." in page.texts
        assert page.field("key") == "x-api-key"
        assert page.field("secret") == ""
        await visitor.post("/connector", given | {"secret": ""})
        kept = (await visitor.api.call("GET", "/connector", visitor.headers)).json()
        assert kept["signed"]
        trial = SeenPage((await visitor.post("/connector/test", {})).text)
        assert trial.text.startswith("Content came")
        assert "<p>Hello</p>" in trial.texts
        assert "abc" not in trial.text
    calls = await visitor.get("/connector/calls")
    assert calls.text == ("Calls go out; 0 of the last 0 failed No call within the last day.")
    await visitor.post("/connector/delete", {})
    assert (await visitor.api.call("GET", "/connector", visitor.headers)).status_code == 404


async def test_figures(visitor: Visitor, bodies: Bodies, venue: int):
    today = NOW.date()
    campaign = await campaign_with(visitor, bodies, venue, name="Boats")
    async with visitor.api.database.write.begin() as session:
        session.add_all(
            Statistic(
                day=today - timedelta(days=back),
                kind=kind,
                ref=ref,
                venue_id=venue,
                detections=1000 + back,
                devices=10,
                notifications=4 + back,
            )
            for kind, ref in (("venue", venue), ("campaign", campaign))
            for back in (0, 3)
        )
    figures = await visitor.get("/parts/figures")
    assert figures.text.startswith("Detections 2 003 today 1 000 Visits 20 today 10")
    (plot,) = [found["data-plot"] for _, found in figures.tags if "data-plot" in found]
    assert '"values":[7,0,0,4]' in (plot or "")
    assert "Boats" in (await visitor.get("/parts/largest/campaigns")).texts
    assert "Boats" in (await visitor.get("/statistics")).texts
    chosen = await visitor.get(f"/statistics?kind=venue&venue={venue}&from={today}&to={today}")
    assert "1\u202f000" in chosen.texts
    refused = await visitor.get("/statistics?from=yesterday", status=400)
    assert "from-said" in {found.get("id") for _, found in refused.tags}
    results = await visitor.get(f"/venues/{venue}/campaigns/{campaign}/results")
    assert [found for _, found in results.tags if "data-plot" in found]
    sheet = await visitor.client.get("/console/statistics.csv?kind=campaign")
    assert sheet.headers["content-type"] == "text/csv; charset=utf-8"
    assert sheet.headers["content-disposition"] == 'attachment; filename="statistics.csv"'
    assert sheet.headers.get_list("x-request-id") == [sheet.headers["x-request-id"]]
    assert sheet.text.splitlines()[1].startswith(f"{today - timedelta(days=3)},")
    assert len(sheet.text.splitlines()) == 3


async def test_the_audit_tells_who_made_it_here(visitor: Visitor):
    for number in range(60):
        given = {"name": f"Depot {number}", "address": "", "active": "1"}
        await visitor.post("/venues/new", given)
    page = await visitor.get("/audit")
    assert page.texts.count(visitor.session.email) == 51  # in the head, too
    assert "Depot 59" in page.texts
    (following,) = [link for link in page.links() if "before=" in link]
    rest = await visitor.get(following.removeprefix("/console"))
    assert {"Depot 9", "Depot 0"} <= set(rest.texts)


async def test_what_is_not_there(api: Harness, visitor: Visitor):
    for path in ("/nowhere", "/venues/999999", "/venues/x", "/static/../routes.py"):
        page = await visitor.get(path, status=404)
        assert page.texts[-2:] != [], path
        assert "Not found" in page.texts
    assert (await visitor.client.get("/console/")).headers["location"] == "/console"


async def test_files_are_kept_under_the_address_of_their_contents(visitor: Visitor):
    page = await visitor.get("")
    files = [found.get("src") or "" for tag, found in page.tags if tag == "script"]
    files += [found.get("href") or "" for tag, found in page.tags if tag == "link"]
    assert len(files) == 7
    for file in files:
        answer = await visitor.client.get(file)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        assert len(answer.content) > 100
    old = await visitor.client.get(files[0].partition("?")[0] + "?older")
    assert old.headers["cache-control"] == "no-cache"
