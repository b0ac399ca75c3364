"""Faults that only show beside what the catalog already has.

Values that were refused may be missing from the items, so that all faults are found in one go.
"""

from collections.abc import Sequence
from typing import Any

from catalog.fields.reading import Faults
from catalog.fields.venue import Triple
from catalog.limits import CONTENT, CatalogLimits, LimitError, check_content
from catalog.load.document import CompanyItem, Item, VenueItem, triple_of
from catalog.load.stored import Stored
from catalog.secrets import MISSING_KEY

_FOREIGN = "belongs to another company"


def check(
    item: CompanyItem, stored: Stored, *, encrypts: bool, limits: CatalogLimits, faults: Faults
) -> None:
    """Note what is wrong with a company; `encrypts` says whether there is a key."""
    for account in item.accounts:
        if stored.is_foreign(stored.accounts.get(account.values.get("email", ""))):
            faults.note(f"{account.place}.email", _FOREIGN, value=account.values["email"])
    for application in item.applications:
        if stored.is_foreign(stored.applications.get(application.values.get("api_key", ""))):
            faults.note(f"{application.place}.api_key", _FOREIGN)
    if item.connector is not None and not encrypts:
        faults.note(item.connector.place, MISSING_KEY)
    own = {
        triple
        for venue in item.venues
        for beacon in venue.beacons
        if (triple := triple_of(beacon.values))
    }
    for venue in item.venues:
        _check_venue(venue, stored, own, faults)
        _check_contents(venue, stored, limits, faults)


def _check_venue(venue: VenueItem, stored: Stored, own: set[Triple], faults: Faults) -> None:
    name = venue.values.get("name", "")
    _check_single(stored.venues.get(name, []), "venues", venue, faults)
    for beacon in venue.beacons:
        triple = triple_of(beacon.values)
        if triple is not None and stored.is_foreign(stored.beacons.get(triple)):
            faults.note(beacon.place, f"{triple} {_FOREIGN}")
    for fence in venue.geofences:
        known = stored.geofences.get((name, fence.values.get("name", "")), [])
        _check_single(known, "geofences", fence, faults)
    fences = {fence.values.get("name") for fence in venue.geofences}
    fences |= {fence for at, fence in stored.geofences if at == name}
    for campaign in venue.campaigns:
        same = stored.campaigns.get((name, campaign.values.get("name", "")), [])
        _check_single(same, "campaigns", campaign, faults)
        _check_ties(campaign, stored, own, fences, faults)


def _check_contents(
    venue: VenueItem, stored: Stored, limits: CatalogLimits, faults: Faults
) -> None:
    for campaign in venue.campaigns:
        key = (venue.values.get("name", ""), campaign.values.get("name", ""))
        known = stored.campaigns.get(key, [])
        kept = {name: getattr(known[0], name) for name in CONTENT} if known else {}
        try:
            check_content(limits, kept | campaign.values, kept)
        except LimitError as error:
            faults.note(f"{campaign.place}.{error.field}", str(error))


def _check_single(known: Sequence[Any], kind: str, item: Item, faults: Faults) -> None:
    if len(known) > 1:
        faults.note(
            f"{item.place}.name",
            f"{len(known)} {kind} have this name: rename all but one",
            value=item.values["name"],
        )


def _check_ties(
    campaign: Item, stored: Stored, own: set[Triple], fences: set[Any], faults: Faults
) -> None:
    for place, triple in campaign.values.get("beacons", []):
        known = stored.beacons.get(triple)
        if triple not in own and (known is None or stored.is_foreign(known)):
            faults.note(place, f"{triple} is not a beacon of this company")
    for name in campaign.values.get("geofencings", []):
        if name not in fences:
            faults.note(f"{campaign.place}.geofencings", "not a geofence of the venue", value=name)
