"""The document, read and checked as far as that goes without the database."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from catalog.fields.campaign import CAMPAIGN, DAYS, HOURS, campaign_conflicts
from catalog.fields.company import ACCOUNT, APPLICATION, COMPANY, DEVICE
from catalog.fields.connector import CONNECTOR, connector_conflicts
from catalog.fields.reader import Reader
from catalog.fields.reading import Faults, Field, names_of, note_unknown, read_fields
from catalog.fields.venue import BEACON, GEOFENCE, TRIPLE, VENUE, Triple, names

# Answers of the interface carry these; a file made from one may keep them, and they do nothing.
_READ_ONLY = ("id", "create_on", "update_on", "nb_beacon", "nb_campaign")
_LISTED = "accepted: a list of objects"


@dataclass
class Item:
    """A record of the document: where it stands, and the attributes it gives."""

    place: str
    values: dict[str, Any]


@dataclass
class VenueItem(Item):
    """A venue and what is in it. A campaign's `beacons` are (place, triple) pairs."""

    beacons: list[Item] = field(default_factory=list)
    geofences: list[Item] = field(default_factory=list)
    campaigns: list[Item] = field(default_factory=list)


@dataclass
class CompanyItem(Item):
    """A company and what it has."""

    accounts: list[Item] = field(default_factory=list)
    applications: list[Item] = field(default_factory=list)
    connector: Item | None = None
    devices: list[Item] = field(default_factory=list)
    venues: list[VenueItem] = field(default_factory=list)


def read_document(raw: bytes, faults: Faults) -> list[CompanyItem]:
    """The companies of a document. Every fault is noted; with any, the result is incomplete."""
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        faults.note(f"line {error.lineno} column {error.colno}", f"not JSON: {error.msg}")
        return []
    if not isinstance(document, dict) or not isinstance(document.get("companies"), list):
        faults.note("", 'accepted: an object {"companies": [...]}')
        return []
    note_unknown(["companies"], document, place="", faults=faults)
    return [_company(*found, faults) for found in _objects(document, "companies", "", faults)]


def triple_of(values: dict[str, Any]) -> Triple:
    """The triple among a beacon's values."""
    return Triple(values["uuid"], values["major"], values["minor"])


def triples_in(company: CompanyItem) -> list[Triple]:
    """Every triple that a company names, of its beacons and of its campaigns' targets, once."""
    found: dict[Triple, None] = {}
    for venue in company.venues:
        for beacon in venue.beacons:
            if {"uuid", "major", "minor"} <= beacon.values.keys():
                found[triple_of(beacon.values)] = None
        for campaign in venue.campaigns:
            found.update((triple, None) for _, triple in campaign.values.get("beacons", []))
    return list(found)


def _company(place: str, given: dict[str, Any], faults: Faults) -> CompanyItem:
    inside = ("accounts", "applications", "connector", "devices", "venues")
    item = CompanyItem(place, _values(COMPANY, place, given, faults, inside))
    item.accounts = _items(ACCOUNT, given, "accounts", place, faults)
    item.applications = _items(APPLICATION, given, "applications", place, faults)
    item.connector = _connector(place, given.get("connector"), faults)
    item.devices = _items(DEVICE, given, "devices", place, faults)
    item.venues = [_venue(*found, faults) for found in _objects(given, "venues", place, faults)]
    return item


def _connector(place: str, given: Any, faults: Faults) -> Item | None:
    if given is None:
        return None
    here = f"{place}.connector"
    if not isinstance(given, dict):
        faults.note(here, "accepted: an object")
        return None
    values = _values(CONNECTOR, here, given, faults)
    _note_conflicts(here, connector_conflicts(values), faults)
    return Item(here, values)


def _venue(place: str, given: dict[str, Any], faults: Faults) -> VenueItem:
    inside = ("beacons", "geofences", "geofencings", "campaigns")
    item = VenueItem(place, _values(VENUE, place, given, faults, inside))
    item.beacons = _items(BEACON, given, "beacons", place, faults)
    for name in ("geofences", "geofencings"):
        item.geofences += _items(GEOFENCE, given, name, place, faults)
    item.campaigns = [
        _campaign(*found, faults) for found in _objects(given, "campaigns", place, faults)
    ]
    return item


def _campaign(place: str, given: dict[str, Any], faults: Faults) -> Item:
    values = _values(CAMPAIGN, place, given, faults, names_of([*DAYS, *HOURS, *_TIES]))
    values |= read_fields([*DAYS, *HOURS], given, place=place, faults=faults, require=False)
    values |= read_fields([_TIES[1]], given, place=place, faults=faults)
    if "beacons" in given:
        values["beacons"] = [
            (here, triple_of(triple))
            for here, listed in _objects(given, "beacons", place, faults)
            if len(triple := read_fields(TRIPLE, listed, place=here, faults=faults)) == len(TRIPLE)
        ]
    _note_conflicts(place, campaign_conflicts(values), faults)
    return Item(place, values)


_TIES = (
    Field(name="beacons", read=Reader(list, {"type": "array"})),
    Field(name="geofencings", read=names),
)


def _note_conflicts(place: str, conflicts: Sequence[tuple[str, str]], faults: Faults) -> None:
    known = {fault.place for fault in faults}
    for name, message in conflicts:
        # A value that was refused has been named already.
        if f"{place}.{name}" not in known:
            faults.note(f"{place}.{name}", message)


def _items(
    fields: Sequence[Field], given: dict[str, Any], name: str, place: str, faults: Faults
) -> list[Item]:
    return [
        Item(here, _values(fields, here, listed, faults))
        for here, listed in _objects(given, name, place, faults)
    ]


def _values(
    fields: Sequence[Field],
    place: str,
    given: dict[str, Any],
    faults: Faults,
    inside: Sequence[str] = (),
) -> dict[str, Any]:
    known = [*names_of(fields), *inside]
    note_unknown(known, {n: None for n in given if n not in _READ_ONLY}, place=place, faults=faults)
    return read_fields(fields, given, place=place, faults=faults)


def _objects(
    given: dict[str, Any], name: str, place: str, faults: Faults
) -> Iterator[tuple[str, dict[str, Any]]]:
    here = f"{place}.{name}" if place else name
    listed = given.get(name, [])
    if not isinstance(listed, list):
        faults.note(here, _LISTED, value=listed)
        return
    for number, item in enumerate(listed):
        if isinstance(item, dict):
            yield f"{here}[{number}]", item
        else:
            faults.note(f"{here}[{number}]", "accepted: an object", value=item)
