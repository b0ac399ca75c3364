"""Each page for accounts of every level, and for records of another company."""

import pytest
from sqlalchemy import select

from catalog.inputs import AREAS
from catalog.models import Account, Company
from tests.api import harness as examples
from tests.api.harness import Bodies, Harness
from tests.api.test_tenancy import Holder, everything
from tests.console.addresses import ConsoleAddress, addresses
from tests.console.visitor import Visitor

# By what a path holds, the first that fits.
AREA_OF = {
    "/results": "analytic",
    "/recent": "analytic",
    "/beacons": "beacon",
    "/geofences": "region",
    "/nfcs": "nfc",
    "/qrcodes": "qrcode",
    "/campaigns": "campaign",
    "/venues": "region",
    "/parts/silent": "region",
    "/parts/roles": "realtime",
    "/parts": "analytic",
    "/statistics": "analytic",
    "/devices": "crm",
    "/connector": "connector",
    "/audit": "profile",
    "/company": "profile",
    "/live/feed": "realtime",
}
# POST operations that change nothing.
QUESTIONS = ("/explain", "/calendar", "/preview")
# Forms and frames that show nothing stored, and what leads on to another page.
SHOWN_TO_ALL = (
    *(str(a) for a in addresses() if a.method == "GET" and a.path.endswith(("/new", "/import"))),
    *("GET ", "GET /live", "GET /campaigns", "GET /venues/{id:int}/campaigns/states"),
    *("POST /calendar", "POST /preview", "POST /sign-out"),
)
KINDS = {
    "beacons": "beacon",
    "geofences": "geofencing",
    "nfcs": "nfc",
    "qrcodes": "qrcode",
    "campaigns": "campaign",
}
# Good for every form.
GOOD = {
    **{name: str(value) for name, value in (examples.BEACON | examples.GEOFENCE).items()},
    **{name: str(value) for name, value in (examples.VENUE | examples.CAMPAIGN).items()},
    "minor": "9999",
    "value": "changed",
    "name": "changed",
    "tags": "",
    "start_day": "2026-11-20",
    "end_day": "2027-11-20",
    "at": "",
    "beacon": "",
    "udid": "",
    "image": "",
    "sure": "1",
    "chosen": "1",
    "cache": "1",
    "cache_unit": "day",
    "on": "detection",
    "priority": "5",
    "csv": "name\nchanged",
}
LINKS = {
    "/live": "realtime",
    "/campaigns": "campaign",
    "/venues": "region",
    "/devices": "crm",
    "/connector": "connector",
    "/statistics": "analytic",
    "/audit": "profile",
    "/company": "profile",
}


def area_of(address: ConsoleAddress) -> str:
    return next(area for part, area in AREA_OF.items() if part in address.path)


def path_to(holder: Holder, address: ConsoleAddress, venue: int | None = None) -> str:
    """An address with the records of a company in it; `venue` in the place of its own."""
    words = address.path.split("/")
    kind = next((KINDS[word] for word in words if word in KINDS), "region")
    number = holder.ids["crm"] if words[1] == "devices" else venue or holder.ids["region"]
    return address.filled(id=number, uid=holder.ids[kind])


async def called(visitor: Visitor, address: ConsoleAddress, path: str) -> tuple[int, str]:
    if address.method == "GET":
        answer = await visitor.client.get(f"/console{path}")
    else:
        answer = await visitor.post(path, GOOD)
    return answer.status_code, answer.text


@pytest.fixture
async def ours(api: Harness, bodies: Bodies) -> Holder:
    return await Holder(api, await api.account()).fill(bodies)


@pytest.fixture
async def theirs(api: Harness, bodies: Bodies) -> Holder:
    return await Holder(api, await api.account()).fill(bodies)


@pytest.mark.parametrize("level", [0, 1])
async def test_pages_offer_only_what_the_level_allows(api: Harness, ours: Holder, level: int):
    """An account with this level in one area and all permissions in the others."""
    company = await company_of(api, ours)
    for address in addresses():
        if str(address) in SHOWN_TO_ALL:
            continue
        levels = dict.fromkeys(AREAS, 2) | {area_of(address): level}
        async with Visitor(api, await api.account(company, **levels)) as visitor:
            status, text = await called(visitor, address, path_to(ours, address))
        needed = 2 if address.method == "POST" else 1
        if address.path.endswith(QUESTIONS):
            needed = 1
        elif address.path.endswith(("/place", "/switch", "/import")) and level == 0:
            needed = 1  # to read what stands there
        refusal = f"needs level {needed} in the permission area {area_of(address)}"
        assert (refusal in text) == (level < needed), f"{address}: {status} {text}"


@pytest.mark.parametrize("link", LINKS)
async def test_only_what_may_be_read_is_offered(api: Harness, link: str):
    levels = dict.fromkeys(AREAS, 0) | {LINKS[link]: 1}
    async with Visitor(api, await api.account(None, **levels)) as visitor:
        offered = (await visitor.get("")).links() - {"#content", "/console", "/docs"}
        # (One area may have several pages.)
        assert offered == {f"/console{each}" for each in LINKS if LINKS[each] == LINKS[link]}


async def test_a_reader_is_offered_no_change(api: Harness, ours: Holder):
    company = await api.account(await company_of(api, ours), **dict.fromkeys(AREAS, 1))
    venue, campaign, beacon = (ours.ids[name] for name in ("region", "campaign", "beacon"))
    async with Visitor(api, company) as visitor:
        for path in (
            f"/venues/{venue}",
            f"/venues/{venue}/edit",
            f"/venues/{venue}/beacons/{beacon}",
            f"/venues/{venue}/campaigns/{campaign}",
            f"/venues/{venue}/campaigns",
            f"/devices/{ours.ids['crm']}",
            f"/devices/{ours.ids['crm']}/held",
            "/connector",
        ):
            page = await visitor.get(path)
            assert not {link for link in page.links() if link.endswith(("/new", "/edit"))}, path
            for word in ("Save", "Delete now", "Mark as test device", "Forget now", "Call once"):
                assert word not in page.texts, path


async def company_of(api: Harness, holder: Holder) -> Company | None:
    async with api.database.read() as session:
        query = select(Company).join(Account, Account.company_id == Company.id)
        return await session.scalar(query.where(Account.email == holder.headers["x-service-key"]))


async def test_no_page_reaches_another_companys_record(api: Harness, ours: Holder, theirs: Holder):
    before = await everything(api)
    where = f"/region/{theirs.ids['region']}"
    name = (await api.call("GET", where, theirs.headers)).json()["name"]
    tried = [address for address in addresses() if "{id:int}" in address.path]
    assert len(tried) > 25
    async with Visitor(api, ours.headers) as visitor:
        for address in tried:
            paths = [path_to(theirs, address)]
            if "{uid:int}" in address.path:
                paths.append(path_to(theirs, address, venue=ours.ids["region"]))
            for path in paths:
                status, text = await called(visitor, address, path)
                # (Another company's figures are no figures.)
                shown = ("s/new", "/results", "/states")
                expected = 200 if path.endswith(shown) and "campaigns/new" not in path else 404
                if address.method == "POST":
                    expected = 404
                assert status == expected, f"{address}: {status} {text}"
                assert name not in text, f"{address}: {text}"
    assert await everything(api) == before
