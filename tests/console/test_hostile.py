"""Names, contents and pictures of strangers in every field: shown, and harmless."""

import re
from datetime import UTC, datetime
from typing import Any

from catalog.models import WEEKDAYS, AuditEntry, DetectionTrace
from tests.api import harness as examples
from tests.api.harness import Bodies, Harness
from tests.console.visitor import (
    SeenPage,
    Visitor,
    addresses,
    decided,
    detected,
    device_of,
    statistic,
)

SCRIPT = "\"'></script><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}"
NOW = datetime.now(UTC)
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
# What a browser would run or load from elsewhere.
_LOADS = ("src", "href", "action", "formaction", "data", "poster", "srcset")


async def filled(visitor: Visitor, bodies: Bodies) -> dict[str, int]:
    """A company whose every text is hostile."""
    tagged = {"tags": [{"name": SCRIPT}]}
    venue = bodies.venue(
        name=SCRIPT, address=SCRIPT, image="https://evil.example/plan.svg", width=5, height=5
    )
    ids = {"venue": await visitor.made("/region", venue)}
    where = f"/region/{ids['venue']}"
    beacon = bodies.beacon(name=SCRIPT, x=3, y=-4, color="red", **tagged)
    ids["beacon"] = await visitor.made(f"{where}/beacon", beacon)
    ids["geofence"] = await visitor.made(f"{where}/geofencing", bodies.geofence(name=SCRIPT))
    texts = {"name": SCRIPT, "title": SCRIPT, "push": SCRIPT, "html": SCRIPT, "format": "html"}
    campaign = bodies.campaign(**texts, **tagged, template=f"\n{SCRIPT}")
    ids["campaign"] = await visitor.made(f"/lieu/{ids['venue']}/campaign", campaign)
    connector = bodies.connector(name=SCRIPT, parameters='[{"key": "x", "value": "\\"><script>"}]')
    await visitor.api.call("PUT", "/connector", visitor.headers, connector)
    company = await visitor.api.company_of(visitor.headers)
    facts = dict.fromkeys(("name", "version", "model", "token_push"), SCRIPT)
    ids["device"] = await device_of(visitor, SCRIPT, **facts)
    kinds = ("venue", "beacon", "campaign")
    await visitor.api.add(
        DetectionTrace(
            device_id=ids["device"],
            venue_id=ids["venue"],
            beacon_id=ids["beacon"],
            status=SCRIPT[:16],
            create_on=NOW,
            ip=SCRIPT[:45],
        ),
        AuditEntry(
            company_id=company,
            create_on=NOW,
            account_id=1,
            email=SCRIPT,
            request=SCRIPT,
            action="edit",
            kind="venue",
            ref=1,
            before={"name": SCRIPT},
            after={"name": [SCRIPT], SCRIPT: SCRIPT},
        ),
        *(statistic(NOW.date(), kind, ids[kind], ids["venue"], (1, 1, 1)) for kind in kinds),
    )
    await detected(visitor, ids["venue"], {ids["beacon"]: 1})
    await decided(visitor, {"d:0": 3, "r:ended": 3, f"c:{ids['campaign']}:ended": 3})
    return ids


def pages(ids: dict[str, int]) -> list[str]:
    """Every page, some with a hostile query."""
    paths = [
        "/statistics?from=0001-01-01&to=0001-01-02",
        f"/venues/{ids['venue']}/campaigns/states?of=%C2%B2&of={9 * 10**30}",
        "/statistics?from=x&kind=%3Cscript%3E&venue=%22%3E",
        "/devices?search=%22%3E%3Cscript%3E",
    ]
    for address in addresses():
        kind = next((kind for kind in ids if f"/{kind}s/" in address.path), "venue")
        number = ids["device"] if kind == "device" else ids["venue"]
        paths += [address.filled(id=number, uid=ids[kind])] * (address.method == "GET")
    others = ("/export", "/feed", ".csv")
    return [path for path in paths if not path.endswith(others) and path != "/campaigns"]


def is_harmless(page: SeenPage, path: str) -> None:
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], path
        loads = [value or "" for name, value in attributes.items() if name in _LOADS]
        for address in loads:
            assert re.match(r"/(?!/)|\?|#|data:image/", address), f"{path}: {tag} {address}"
        if tag == "script":
            assert (attributes.get("src") or "").startswith("/console/static/"), path
    assert "alert" not in " ".join(tag for tag, _ in page.tags)


async def test_every_page(visitor: Visitor, bodies: Bodies):
    ids = await filled(visitor, bodies)
    for path in pages(ids):
        answer = await visitor.client.get(f"/console{path}")
        assert answer.headers["content-security-policy"] == POLICY, path
        assert answer.headers["cache-control"] == "no-store", path
        assert answer.headers.get_list("x-frame-options") == ["DENY"], path
        assert answer.headers.get_list("referrer-policy") == ["same-origin"], path
        assert "<script>alert" not in answer.text, path
        is_harmless(SeenPage(answer.text), path)
    for part in ("campaigns", "recent"):
        shown = await visitor.get(f"/venues/{ids['venue']}/{part}")
        assert SCRIPT in shown.texts


async def test_refused_input_is_shown_escaped(visitor: Visitor, bodies: Bodies):
    ids = await filled(visitor, bodies)
    own = f"/venues/{ids['venue']}"
    stored = examples.BEACON | examples.GEOFENCE | examples.VENUE | examples.CAMPAIGN
    names = {*stored, *examples.CONNECTOR, "key", "secret", "html", "zone", "at", "udid", "beacon"}
    names |= {"value", "tags", "start_day", "end_day", "cache_unit", "on", "priority"}
    typed: dict[str, Any] = dict.fromkeys(names - {"active", *WEEKDAYS}, SCRIPT)
    for path in (
        "/venues/new",
        f"{own}/edit",
        f"{own}/beacons/new",
        f"{own}/beacons/{ids['beacon']}",
        f"{own}/geofences/new",
        f"{own}/campaigns/new",
        f"{own}/campaigns/{ids['campaign']}",
        "/connector",
    ):
        answer = await visitor.post(path, typed)
        assert answer.status_code == 400, path
        page = SeenPage(answer.text)
        is_harmless(page, path)
        assert page.field("name") == SCRIPT, path
        assert [tag for tag, found in page.tags if found.get("aria-invalid") == "true"], path
    sheet = {"csv": f'name,value\n"{SCRIPT.replace(chr(34), chr(34) * 2)}",\n'}
    explain, many = f"{own}/campaigns/{ids['campaign']}/explain", f"{own}/nfcs/import"
    for path, given in ((explain, typed), (many, sheet)):
        is_harmless(SeenPage((await visitor.post(path, given)).text), path)
    # (These are digits, and no numbers.)
    odd = typed | {"start_time": "²:00", "beacons": "²", "zone": "Mars", "at": "0001-01-01T00:00"}
    for path in (f"{own}/campaigns/new", explain):
        assert (await visitor.post(path, odd)).status_code == 400, path


async def test_html_of_a_campaign_is_shown_in_a_frame_that_can_do_nothing(
    visitor: Visitor, bodies: Bodies
):
    ids = await filled(visitor, bodies)
    own = f"/venues/{ids['venue']}/campaigns/{ids['campaign']}"
    page = await visitor.get(own)
    (frame,) = [found for tag, found in page.tags if tag == "iframe"]
    (button,) = [found for _, found in page.tags if found.get("formtarget") == frame["name"]]
    assert (frame["sandbox"], button["formaction"]) == (None, "/console/preview")
    preview = await visitor.post("/preview", {"format": "html", "html": SCRIPT})
    assert preview.text == f"<p><b></b><br></p>{SCRIPT}"
    texts = {"title": SCRIPT, "push": SCRIPT}
    link = await visitor.post("/preview", {"format": "url", "url": SCRIPT} | texts)
    assert "<script>" not in link.text
    policy = preview.headers["content-security-policy"].split("; ")
    assert policy[:2] == ["sandbox", "default-src 'none'"]
    assert "script-src" not in preview.headers["content-security-policy"]
    assert preview.headers.get_list("x-frame-options") == ["SAMEORIGIN"]


async def test_pictures_are_data_or_nothing(visitor: Visitor, bodies: Bodies):
    picture = "data:image/png;base64,iVBORw0KGgo="
    for image, shown in (
        (picture, picture),
        ("https://evil.example/x.png", None),
        ("data:text/html;base64,AAAA", None),
        ("javascript:alert(1)", None),
        ("", None),
    ):
        venue = await visitor.made("/region", bodies.venue(image=image))
        await visitor.made(f"/region/{venue}/beacon", bodies.beacon())
        page = await visitor.get(f"/venues/{venue}")
        found = [attributes["href"] for tag, attributes in page.tags if tag == "image"]
        assert found == [shown] * (shown is not None), image
        assert ("lies at another site" in page.text) == (shown is None and image != "")


async def test_bodies_that_are_no_forms(api: Harness, visitor: Visitor):
    many = "&".join(f"f{number}=1" for number in range(4000))
    for content, status, kind in (
        (many, 400, "application/x-www-form-urlencoded"),
        ("name=é".encode(), 400, "application/x-www-form-urlencoded"),
        ("{}", 400, "application/json"),
        ("x" * (4 * 1024 * 1024), 413, "application/x-www-form-urlencoded"),
    ):
        headers = {"content-type": kind, "sec-fetch-site": "same-origin"}
        for path in ("/console/venues/new", "/console/sign-in"):
            answer = await visitor.client.post(path, content=content, headers=headers)
            assert answer.status_code == status, path
