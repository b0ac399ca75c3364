"""What pages offer to accounts of lower levels, and records of another company."""

import pytest

from catalog.inputs import AREAS
from tests.api.harness import Harness
from tests.api.test_tenancy import Holder, ours, theirs
from tests.console.visitor import Visitor

__all__ = ["ours", "theirs"]
LINKS = {
    "/live": {"realtime"},
    "/campaigns": {"campaign", "region"},  # it begins with the venues
    "/venues": {"region"},
    "/devices": {"crm"},
    "/connector": {"connector"},
    "/statistics": {"analytic"},
    "/audit": {"profile"},
    "/company": {"profile"},
}


@pytest.mark.parametrize("link", LINKS)
async def test_only_what_may_be_read_is_offered(api: Harness, link: str):
    levels = dict.fromkeys(AREAS, 0) | dict.fromkeys(LINKS[link], 1)
    async with Visitor(api, await api.account(None, **levels)) as visitor:
        offered = (await visitor.get("")).links() - {"#content", "/console", "/docs"}
        # (One area may have several pages.)
        assert offered == {f"/console{each}" for each in LINKS if LINKS[each] <= LINKS[link]}
        for each in offered:
            assert (await visitor.client.get(each, follow_redirects=True)).is_success, each


@pytest.mark.parametrize(
    ("areas", "pages"),
    [(("region", "analytic"), ("", "/recent")), (("campaign",), ("/campaigns", "/campaigns/{}"))],
)
async def test_pages_of_a_venue_need_no_area_but_their_own(
    api: Harness, ours: Holder, areas: tuple[str, ...], pages: tuple[str, ...]
):
    levels = dict.fromkeys(AREAS, 0) | dict.fromkeys(areas, 1)
    async with Visitor(api, await api.colleague(ours.headers, **levels)) as visitor:
        for page in pages:
            path = f"/venues/{ours.ids['region']}{page}".format(ours.ids["campaign"])
            links = (await visitor.get(path)).links()
            assert "region" in areas or "/console/venues" not in links


async def test_a_reader_is_offered_no_change_and_can_make_none(api: Harness, ours: Holder):
    venue = ours.ids["region"]
    own = f"/venues/{venue}"
    reader = await api.colleague(ours.headers, **dict.fromkeys(AREAS, 1))
    async with Visitor(api, reader) as visitor:
        for path in (
            *(own, f"{own}/edit", f"{own}/beacons/{ours.ids['beacon']}", f"{own}/campaigns"),
            *(f"{own}/campaigns/{ours.ids['campaign']}", f"/devices/{ours.ids['crm']}"),
            *(f"/devices/{ours.ids['crm']}/held", "/connector"),
        ):
            page = await visitor.get(path)
            assert not {link for link in page.links() if link.endswith(("/new", "/edit"))}, path
            for word in ("Save", "Delete now", "Mark as test device", "Call once"):
                assert word not in page.texts, path
        refused = await visitor.post(f"{own}/edit", {"name": "changed"})
        assert refused.status_code == 403
        assert "needs level 2 in the permission area region" in refused.text
