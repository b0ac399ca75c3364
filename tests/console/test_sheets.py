"""CSV files: written, read again, and shown with what they change before anything is stored."""

from tests.api.harness import Bodies
from tests.console.visitor import SeenPage, Visitor


async def test_a_file_read_again_changes_nothing(visitor: Visitor, bodies: Bodies, venue: int):
    hostile = {"name": '=1+1; "quoted", and\nnot', "tags": ['"a', 'b, "c"', "-d", " e ", 'f"']}
    tag = {"value": "BEGIN\r\nEND \\u000a", "active": False, **hostile | {"name": "'=\u200f;=1"}}
    for kind, many, body in (
        ("beacon", "beacons", bodies.beacon(x=-3, y=None, tags=["door", "quay"])),
        ("geofencing", "geofences", bodies.geofence(latitude=43.25)),
        ("nfc", "nfcs", tag),
        ("qrcode", "qrcodes", tag),
    ):
        await visitor.made(f"/region/{venue}/{kind}", body)
        before = await visitor.read(f"/region/{venue}/{kind}")
        own = f"/venues/{venue}/{many}"
        sheet = await visitor.client.get(f"/console{own}/export")
        assert sheet.content.startswith(b"\xef\xbb\xbfid,name,")
        assert not [cell for cell in sheet.text.split(",") if cell.startswith("=")]
        page = SeenPage((await visitor.post(f"{own}/import", {"csv": sheet.text})).text)
        assert "unchanged: 1" in page.texts, page.text
        assert "Apply these changes" not in page.texts
        assert await visitor.read(f"/region/{venue}/{kind}") == before


async def test_changes_are_shown_and_then_stored(visitor: Visitor, bodies: Bodies, venue: int):
    where, own = f"/region/{venue}/beacon", f"/venues/{venue}/beacons/import"
    door = await visitor.made(where, bodies.beacon(name="Door", minor=1, tags=["a"]))
    same = (await visitor.read(where))[0]
    lines = [
        "\ufeffid;name;uuid;major;minor;x;tags;active",
        f"{door};Gate;{same['uuid'].upper()};{same['major']};1;7;a;1",
        ";Kiosk;f7826da64fa24e988024bc5b71e0893e;7;9;;b;0",
    ]
    given = {"csv": "\r\n".join(lines)}
    page = SeenPage((await visitor.post(own, given)).text)
    assert "Name : Gate was Door x : 7" in page.text.replace("(", "").replace(")", "")
    assert {"changed: 1", "new: 1"} <= set(page.texts), page.text
    assert await visitor.read(where) == [same]
    applied = await visitor.post(own, given | {"apply": "1"})
    assert applied.status_code == 303
    assert "Saved: 2" in (await visitor.get(f"/venues/{venue}/beacons")).text
    changed, new = await visitor.read(where)
    assert changed == same | {"name": "Gate", "x": 7}
    assert changed["id"] == door
    assert (new["name"], new["active"], new["proximity"]) == ("Kiosk", False, "near")


async def test_every_fault_stands_at_its_line(visitor: Visitor, bodies: Bodies, venue: int):
    where, own = f"/region/{venue}/beacon", f"/venues/{venue}/beacons/import"
    there = await visitor.made("/region", bodies.venue(name="Quay"))
    taken = bodies.beacon()
    await visitor.made(f"/region/{there}/beacon", taken)
    first = await visitor.made(where, bodies.beacon(name="First"))
    before = await visitor.read(where)
    lines = [
        "id,name,uuid,major,minor,proximity",
        f"{first},First,{taken['uuid']},1,-1,near",
        ",New,nothing,1,2,near",
        f",,{taken['uuid']},9,9,far",
        "999999,Gone,,,,",
    ]
    given = {"csv": "\n".join(lines), "apply": "1"}
    refused = await visitor.post(own, given)
    assert refused.status_code == 400
    text = SeenPage(refused.text).text
    for words in ("2 First faulty Minor:", "3 New faulty", "4 faulty Name:"):
        assert words in text, text
    assert "5 Gone faulty the venue has no record 999999" in text
    one = [lines[0], f",X,{taken['uuid']},{taken['major']},{taken['minor']},far"]
    shown = SeenPage((await visitor.post(own, given | {"csv": "\n".join(one)})).text).text
    assert "taken" in shown, shown
    longest = "name\n" + "x" * 200_000
    for wrong in ("", "name,colour\nA,red\n", "name", longest, "name\nA,B", "name\n\\ud800"):
        assert (await visitor.post(own, {"csv": wrong})).status_code == 400
    assert await visitor.read(where) == before
