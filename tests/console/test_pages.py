"""The texts of pages, and the effects of their forms."""

import time
from datetime import date, timedelta
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import pytest
from sqlalchemy import select

from catalog.models import AuditEntry, VisitStatistic
from engine.redis.role_states import RoleStateStore
from tests.api.harness import Bodies, Harness
from tests.console.visitor import SeenPage, Visitor, decided, device_of, statistic
from tests.servers.http_service import replying, serving


async def test_places(visitor: Visitor, bodies: Bodies, venue: int):
    own, where = f"/venues/{venue}", f"/region/{venue}/beacon"
    number = await visitor.made(where, bodies.beacon(x=None, tags=["a"]))
    stored = await visitor.read(f"{where}/{number}")
    place = f"{own}/beacons/{number}/place"
    moved = await visitor.post(place, {"x": "-4", "y": "9"})
    assert "Placed. x -4, y 9" in SeenPage(moved.text).text
    assert await visitor.read(f"{where}/{number}") == stored | {"x": -4, "y": 9}
    assert (await visitor.post(place, {"x": "a", "y": "9"})).status_code == 400
    fence = {"name": "Quay", "latitude": "43,2", "longitude": "5.3", "radius": "300", "active": "1"}
    await visitor.post(f"{own}/geofences/new", fence)
    shown = await visitor.get(own)
    assert [dot["transform"] for _, dot in shown.tags if "data-id" in dot] == ["translate(-4 9)"]
    # Nothing is cut off: the view is wider than the plan.
    (view,) = [found["viewbox"] or "" for _, found in shown.tags if "data-places" in found]
    left, top, *_ = map(float, view.split())
    assert left < -4
    assert top < 0
    assert "43.2" in (await visitor.get(f"{own}/geofences")).texts
    for kind in ("nfc", "qrcode"):
        tag = {"name": "Counter", "value": "https://example.org/", "active": "1", "tags": "a"}
        assert "value-note" in (await visitor.post(f"{own}/{kind}s/new", tag | {"value": ""})).text
        await visitor.post(f"{own}/{kind}s/new", tag)
        assert "Counter" in (await visitor.get(f"{own}/{kind}s")).texts
    lines = await visitor.made(f"/region/{venue}/qrcode", bodies.tag(value="two\r\nlines"))
    form = await visitor.get(f"{own}/qrcodes/{lines}")
    assert [found["name"] for tag, found in form.tags if tag == "textarea"] == ["value"]
    await visitor.post(f"{own}/qrcodes/{lines}", {"name": "New", "value": "two\nlines"})
    edited = await visitor.read(f"/region/{venue}/qrcode/{lines}")
    assert (edited["name"], edited["value"]) == ("New", "two\r\nlines")
    image = await visitor.client.get(f"/console{own}/qrcodes/{lines}/image")
    assert image.headers["content-type"].startswith("image/svg+xml")
    await visitor.post(f"{own}/delete", {})
    assert "No venue yet." in (await visitor.get("/venues")).texts


async def test_lists_are_searched_and_sorted_over_all_records(visitor: Visitor, venue: int):
    new = [{"name": f"Label {n:03}", "value": str(n), "active": n % 2 == 0} for n in range(120)]
    await visitor.api.call("POST", f"/region/{venue}/nfc", visitor.headers, new)
    own = f"/venues/{venue}/nfcs"
    first = await visitor.get(own)
    assert "1–50 of 120" in first.texts
    (following,) = [link for link in first.links() if "offset=50" in link]
    assert "51–100 of 120" in (await visitor.get(own + following)).texts
    found = await visitor.get(f"{own}?search=11&state=off&sort=-name")
    labels = [text for text in found.texts if text.startswith("Label")]
    assert labels == [f"Label {number:03}" for number in (119, 117, 115, 113, 111, 11)]
    assert "Nothing was found." in (await visitor.get(f"{own}?search=zzz")).texts


async def test_a_device(visitor: Visitor):
    numbers = [await device_of(visitor, f"phone-{number}") for number in range(3)]
    shown = (await visitor.get("/devices")).links()
    assert {f"/console/devices/{number}" for number in numbers} <= shown
    found = await visitor.client.get("/console/devices?search=phone-2")
    path = f"/devices/{numbers[2]}"
    assert found.headers["location"] == f"/console{path}"
    for given, word in (({"test": "1"}, "Test device"), ({}, "Mark as test device")):
        await visitor.post(f"{path}/test", given)
        assert word in (await visitor.get(path)).texts
    assert "No decision within the last day." in (await visitor.get(f"{path}/decisions")).texts


async def test_a_connectors_secrets_are_kept_and_not_shown(visitor: Visitor, bodies: Bodies):
    async with serving(replying(body={"format": "html", "html": "<p>Hello</p>"})) as service:
        pairs = {"key": ["x-api-key", ""], "value": ["key-of-the-shop", ""]}
        given = bodies.connector(url=service.url()) | pairs
        await visitor.post("/connector", given | {"secret": "a signing secret"})
        page = await visitor.get("/connector")
        assert "One is stored; leave it empty to keep it." in page.texts
        assert (page.field("key"), page.field("secret")) == ("x-api-key", "")
        await visitor.post("/connector", given | {"secret": ""})
        assert (await visitor.read("/connector"))["signed"]
        trial = SeenPage((await visitor.post("/connector/test", {})).text)
        assert "<p>Hello</p>" in trial.texts
        assert "key-of-the-shop" not in trial.text
    await visitor.post("/connector/delete", {})
    assert "Call once" not in (await visitor.get("/connector")).texts


async def test_the_company(visitor: Visitor, venue: int):
    written = "time_zone=Mars&start=22:00&end=24:00&monday=1&sunday=1&presence=1"
    given: dict[str, Any] = dict(parse_qsl(written))
    given |= {"max": ["3", "", "10"], "per": ["1", "", "2"], "per_unit": ["day", "hour", "week"]}
    wrong = SeenPage((await visitor.post("/company", given | {"max": ["x", "", "10"]})).text)
    notes = {found.get("id") for _, found in wrong.tags if found.get("class") == "problem"}
    assert notes == {"time_zone-note", "caps-note"}
    await visitor.post("/company", given | {"time_zone": "Europe/Paris"})
    path = "/profile/company"
    stored = await visitor.read(path)
    assert stored["caps"] == [{"max": 3, "per": "day"}, {"max": 10, "per": "2 weeks"}]
    night = {"start": "22:00", "end": "24:00"}
    assert stored["quiet_hours"] == night | {"weekdays": ["monday", "sunday"]}
    assert stored["presence"]
    page = await visitor.get("/company")
    assert "Saved" in page.text
    assert (page.field("max"), page.field("end")) == ("3", "24:00")
    assert all(found.get("type") != "time" for _, found in page.tags), "24:00 is none in a browser"
    caps = {"caps": [{"max": 3, "per": "90 seconds"}]}
    await visitor.api.call("PUT", path, visitor.headers, caps)
    tags = (await visitor.get("/company")).tags
    assert ("option", {"value": "second", "selected": None}) in tags
    without = {"time_zone": "", "start": "", "end": "", "visit_silence": "60"}
    await visitor.post("/company", without)
    stored = await visitor.read(path)
    assert (stored["caps"], stored["quiet_hours"], stored["visit_silence"]) == ([], None, 60)


async def test_figures(visitor: Visitor, bodies: Bodies, venue: int, today: date):
    where = f"/lieu/{venue}/campaign"
    campaign = await visitor.made(where, bodies.campaign(name="Boats"))
    async with visitor.api.database.write.begin() as session:
        session.add_all(
            statistic(today - timedelta(days=back), kind, ref, venue, (1000 + back, 10, 4 + back))
            for kind, ref in (("venue", venue), ("campaign", campaign))
            for back in (0, 3)
        )
    figures = await visitor.get("/parts/figures")
    for words in ("Detections 2 003 before: 0", "today 1 000", "Device days 20", "today 10"):
        assert words in figures.text
    assert f"{today - timedelta(days=3)}: 7" in figures.texts
    assert "Boats" in (await visitor.get("/statistics")).texts
    assert "240+ min" not in (await visitor.get("/statistics")).texts, "nobody counts visits"
    visits = {"day": today, "kind": "venue", "ref": venue, "venue_id": venue}
    await visitor.api.add(VisitStatistic(**visits, minutes=5, begun=4321, ended=2, seconds=840))
    chosen = await visitor.get(f"/statistics?kind=venue&venue={venue}&from={today}&to={today}")
    assert {"1\u202f000", "4\u202f321", "4\u202f319", "7 min", "240+ min"} <= set(chosen.texts)
    refused = await visitor.get("/statistics?from=yesterday", status=400)
    assert "from-note" in {found.get("id") for _, found in refused.tags}
    refusals = {"r:ended": 8, f"c:{campaign}:ended": 8, f"c:{campaign}:granted": 1}
    await decided(visitor, refusals)
    results = await visitor.get(f"/venues/{venue}/campaigns/{campaign}/results")
    assert "Held back: 8 over 8" in results.text
    assert "Detections" not in results.text
    sheet = await visitor.client.get("/console/statistics.csv?kind=campaign")
    assert sheet.headers["content-disposition"].startswith('attachment; filename="campaigns-')
    assert sheet.text.splitlines()[1] == "Boats,Pier,2003,20,11"


async def test_a_period_is_compared_with_the_one_before(visitor: Visitor, venue: int, today: date):
    for back, count in ((0, 30), (7, 20), (40, 5)):
        day = today - timedelta(days=back)
        await visitor.api.add(statistic(day, "venue", venue, venue, (count, 1, 0)))
    page = await visitor.get("/statistics")
    assert "Detections 30 before: 20 +50%" in page.text
    first, last = (today - timedelta(days=back) for back in (13, 7))
    assert f"Compared with {first} to {last}" in page.texts
    assert "Detections 50 before: 5 +900%" in (await visitor.get("/statistics?period=30")).text
    month = await visitor.get("/statistics?period=last_month")
    assert month.field("to") == str(today.replace(day=1) - timedelta(days=1))


async def test_the_audit_is_in_words(visitor: Visitor, bodies: Bodies, venue: int):
    path = f"/lieu/{venue}/campaign"
    body = bodies.campaign(name="Boats", cache="hour")
    where = f"{path}/{await visitor.made(path, body)}"
    change = body | {"cache": "2 hours", "monday": False, "start_time": "09:30", "on": "exit"}
    await visitor.api.call("PUT", where, visitor.headers, change)
    page = await visitor.get("/audit")
    assert "changed campaign Boats" in page.text
    for words in (
        "Pause : 2 hours (was hour)",
        "Weekdays : Tu We Th Fr Sa (was Mo Tu We Th Fr Sa)",
        "From : 09:30 (was 09:00)",
        "Sent on : the end of a visit (was each detection)",
    ):
        assert words in page.text, page.text
    assert "delay" not in page.text


async def test_deleted_records_are_restored(visitor: Visitor, bodies: Bodies, venue: int):
    ids = {}
    for kind, path, body in (
        ("beacons", f"/region/{venue}/beacon", bodies.beacon(name="Door")),
        ("campaigns", f"/lieu/{venue}/campaign", bodies.campaign(name="Boats")),
    ):
        ids[kind] = await visitor.made(path, body)
        await visitor.api.call("DELETE", f"{path}/{ids[kind]}", visitor.headers)
    for name, kind in (("Boats", "campaigns"), ("Door", "beacons")):
        page = await visitor.get("/audit?search=delete")
        assert name in page.texts
        for _ in range(2):  # an old page offers it again
            restored = await visitor.post(page.action(f"{kind}/{ids[kind]}/restore"), {})
        home = restored.headers["location"].removeprefix("/console")
        assert "Restored" in (await visitor.get(home)).text
    async with visitor.api.database.write.begin() as session:
        for entry in await session.scalars(select(AuditEntry)):
            entry.create_on -= timedelta(days=31)
    assert "Restore" not in (await visitor.get("/audit?search=delete")).texts


async def test_refusals_are_pages(api: Harness, visitor: Visitor, monkeypatch: pytest.MonkeyPatch):
    files = ("/static/routes.py", "/static/../routes.py")
    for path in ("/nowhere", "/venues/999999", "/venues/x", *files):
        page = await visitor.get(path, status=404)
        assert "Not found" in page.texts
    assert (await visitor.client.put("/console/venues")).headers["allow"] == "GET"
    style = await visitor.client.get("/console/static/console.css")
    assert (style.status_code, style.headers["cache-control"]) == (200, "no-cache")
    again = {"if-none-match": style.headers["etag"]}
    answer = await visitor.client.get("/console/static/console.css", headers=again)
    assert answer.status_code == 304
    assert "Overview" in (await visitor.get("/")).texts

    async def without_sql(*_: Any) -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr(api.app.state.services.sessions, "find", without_sql)
    assert "SQL or Redis does not answer" in (await visitor.get("", status=503)).text
    assert (await visitor.client.get("/console")).headers["retry-after"] == "1"


async def test_how_the_service_keeps_up(visitor: Visitor):
    part = "/parts/roles"
    assert "No trigger has been heard from within a day" in (await visitor.get(part)).texts
    redis = visitor.api.stores.redis
    store = RoleStateStore(redis=redis, prefix="proximity:", deadline=10.0)
    await store.write("a", "trigger", behind=0.4, waits_for=[])
    await store.write("a", "recorder", behind=12.3, waits_for=[])
    await store.write("a", "connector", behind=None, waits_for=["kafka", "redis_writes"])
    page = await visitor.get(part)
    assert page.texts == [
        "The trigger is up to date",
        "The connector waits for Kafka, room in Redis",
        "The recorder is 12 s behind",
    ]
    (key,) = [key async for key in redis.scan_iter("proximity:roles:*")]
    silent = msgspec.msgpack.encode(("trigger", time.time() - 125, 0.0, []))
    await redis.hset(key, "trigger:a", silent)
    sentence = "No trigger has been heard from for 2 min"
    assert sentence in (await visitor.get(part)).texts
