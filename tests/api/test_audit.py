"""Who changed what and when, secrets left out."""

from tests.api.harness import VENUE, Bodies, Harness, Headers


async def test_every_kind_of_change(api: Harness, owner: Headers, bodies: Bodies):
    owner = owner | {"x-request-id": "change-1"}
    venue = (await api.made("/region", owner, bodies.venue(name="before")))["id"]
    path = f"/region/{venue}"
    await api.call("PUT", path, owner, bodies.venue(name="after") | {"width": 241})
    beacon = (await api.made(f"{path}/beacon", owner, bodies.beacon(tags=[])))["id"]
    edit = bodies.beacon(minor=9, tags=["new"])
    await api.call("PUT", f"{path}/beacon/{beacon}", owner, edit)
    await api.made(f"/lieu/{venue}/campaign", owner, bodies.campaign(html="x" * 50_000))
    await api.call("DELETE", f"{path}/beacon/{beacon}", owner)
    assert (await api.call("POST", "/region", owner, {})).status_code == 400  # leaves no entry
    found = await api.read("/audit", owner)
    assert [(entry["action"], entry["kind"]) for entry in found] == [
        ("create", "venue"),
        ("edit", "venue"),
        ("create", "beacon"),
        ("edit", "beacon"),
        ("create", "campaign"),
        ("delete", "beacon"),
    ]
    assert {entry["email"] for entry in found} == {owner["x-service-key"]}
    assert {entry["request"] for entry in found} == {"change-1"}
    assert await api.read("/audit?sort=-id&limit=2", owner) == found[:-3:-1]
    assert [entry["ref"] for entry in found[:3]] == [venue, venue, beacon]
    made, edited, _, tagged, long, deletion = found
    assert (made["before"], made["after"]["width"]) == ({}, VENUE["width"])
    assert edited["before"] == {"name": "before", "width": VENUE["width"]}
    assert edited["after"] == {"name": "after", "width": 241}
    assert (tagged["before"]["tags"], len(tagged["after"]["tags"])) == ([], 1)
    assert len(long["after"]["html"]) == 200
    assert (deletion["after"], deletion["before"]["minor"]) == ({}, 9)


async def test_no_secret_is_reported(api: Harness, owner: Headers, bodies: Bodies):
    parameters = '[{"key": "token", "value": "geheim-1"}]'
    for secret in ("geheim-2", "geheim-3"):
        body = bodies.connector(parameters=parameters, secret=secret, name="c")
        assert (await api.call("PUT", "/connector", owner, body)).status_code == 200
    key = (await api.made("/profile/application", owner, {"name": "a", "type": "b"}))["api_key"]
    whole = (await api.call("GET", "/audit", owner)).text
    assert "geheim" not in whole
    assert key not in whole
    made, edited, application = await api.read("/audit", owner)
    assert (made["after"]["secret"], edited["before"]["secret"]) == ("*****", "*****")
    assert (application["after"]["name"], application["after"]["api_key"]) == ("a", "*****")
    assert "name" not in edited["after"]


async def test_only_entries_of_the_company_that_the_account_may_read(
    api: Harness, owner: Headers, bodies: Bodies
):
    for headers in (owner, await api.account()):
        await api.made("/region", headers, bodies.venue())
        await api.call("PUT", "/connector", headers, bodies.connector())
    found = await api.read("/audit", owner)
    assert {entry["email"] for entry in found} == {owner["x-service-key"]}
    reader = await api.colleague(owner, region=0)
    assert [entry["kind"] for entry in await api.read("/audit", reader)] == ["connector"]
