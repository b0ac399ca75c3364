"""Reads a catalog document and finds the faults that need no database."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Annotated, Any

import orjson

from catalog.fields.base import (
    ABSENT,
    Faults,
    Fields,
    joined,
    note_unknown,
    read_fields,
    spellings,
)
from catalog.fields.campaign import CampaignFields, campaign_conflicts
from catalog.fields.company import AccountFields, ApplicationFields, CompanyFields, DeviceFields
from catalog.fields.connector import ConnectorInput, connector_conflicts
from catalog.fields.venue import (
    BeaconFields,
    GeofenceInput,
    Triple,
    TripleFields,
    VenueInput,
    names,
)

# Fields of the interface's answers. A file that was made from an answer may hold them; ignored.
_READ_ONLY = ("id", "create_on", "update_on", "nb_beacon", "nb_campaign")
_LISTED = "accepted: a list of objects"


@dataclass
class DocumentRecord:
    """A record of the document: its place, and the attributes that it gives."""

    place: str
    values: dict[str, Any]


@dataclass
class DocumentVenue(DocumentRecord):
    """A venue and its records. A campaign's `beacons` are (place, triple) pairs."""

    beacons: list[DocumentRecord] = field(default_factory=list)
    geofences: list[DocumentRecord] = field(default_factory=list)
    campaigns: list[DocumentRecord] = field(default_factory=list)


@dataclass
class DocumentCompany(DocumentRecord):
    """A company and its records."""

    accounts: list[DocumentRecord] = field(default_factory=list)
    applications: list[DocumentRecord] = field(default_factory=list)
    connector: DocumentRecord | None = None
    devices: list[DocumentRecord] = field(default_factory=list)
    venues: list[DocumentVenue] = field(default_factory=list)


class LoadedBeacon(BeaconFields):
    """A beacon with the names of its tags."""

    tags: Annotated[list[str], names] = ABSENT


class LoadedCampaign(CampaignFields):
    """A campaign with the names of its tags and geofences; its beacons are read separately."""

    tags: Annotated[list[str], names] = ABSENT
    geofencings: Annotated[list[str], names] = ABSENT


def read_document(raw: bytes, faults: Faults) -> list[DocumentCompany]:
    """The companies of a document. Every fault is noted; with faults the result is incomplete."""
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


def triple_of(values: dict[str, Any]) -> Triple | None:
    """The triple of a beacon's values, if all three are accepted."""
    if {"uuid", "major", "minor"} <= values.keys():
        return Triple(values["uuid"], values["major"], values["minor"])
    return None


def triples_in(company: DocumentCompany) -> list[Triple]:
    """Every triple that a company names, for its beacons and its campaigns' targets, once."""
    found: dict[Triple | None, None] = {}
    for venue in company.venues:
        found.update((triple_of(beacon.values), None) for beacon in venue.beacons)
        for campaign in venue.campaigns:
            found.update((triple, None) for _, triple in campaign.values.get("beacons", []))
    return [triple for triple in found if triple is not None]


def _company(place: str, given: dict[str, Any], faults: Faults) -> DocumentCompany:
    inside = ("accounts", "applications", "connector", "devices", "venues")
    item = DocumentCompany(place, _values(CompanyFields, place, given, faults, inside))
    item.accounts = _items(AccountFields, given, "accounts", place, faults)
    item.applications = _items(ApplicationFields, given, "applications", place, faults)
    item.connector = _connector(place, given.get("connector"), faults)
    item.devices = _items(DeviceFields, given, "devices", place, faults)
    item.venues = [_venue(*found, faults) for found in _objects(given, "venues", place, faults)]
    return item


def _connector(place: str, given: Any, faults: Faults) -> DocumentRecord | None:
    if given is None:
        return None
    here = f"{place}.connector"
    if not isinstance(given, dict):
        faults.note(here, "accepted: an object")
        return None
    values = _values(ConnectorInput, here, given, faults)
    faults.note_conflicts(here, connector_conflicts(values))
    return DocumentRecord(here, values)


def _venue(place: str, given: dict[str, Any], faults: Faults) -> DocumentVenue:
    inside = ("beacons", "geofences", "geofencings", "campaigns")
    item = DocumentVenue(place, _values(VenueInput, place, given, faults, inside))
    item.beacons = _items(LoadedBeacon, given, "beacons", place, faults)
    for name in ("geofences", "geofencings"):
        item.geofences += _items(GeofenceInput, given, name, place, faults)
    item.campaigns = [
        _campaign(*found, faults) for found in _objects(given, "campaigns", place, faults)
    ]
    return item


def _campaign(place: str, given: dict[str, Any], faults: Faults) -> DocumentRecord:
    values = _values(LoadedCampaign, place, given, faults, ("beacons",))
    if "beacons" in given:
        named = (
            (here, triple_of(read_fields(TripleFields, listed, place=here, faults=faults)))
            for here, listed in _objects(given, "beacons", place, faults)
        )
        values["beacons"] = [(here, triple) for here, triple in named if triple is not None]
    faults.note_conflicts(place, campaign_conflicts(values))
    return DocumentRecord(place, values)


def _items(
    model: type[Fields], given: dict[str, Any], name: str, place: str, faults: Faults
) -> list[DocumentRecord]:
    return [
        DocumentRecord(here, _values(model, here, listed, faults))
        for here, listed in _objects(given, name, place, faults)
    ]


def _values(
    model: type[Fields],
    place: str,
    given: dict[str, Any],
    faults: Faults,
    inside: Sequence[str] = (),
) -> dict[str, Any]:
    known = [*chain.from_iterable(spellings(model).values()), *inside]
    note_unknown(known, [n for n in given if n not in _READ_ONLY], place=place, faults=faults)
    return read_fields(model, given, place=place, faults=faults)


def _objects(
    given: dict[str, Any], name: str, place: str, faults: Faults
) -> Iterator[tuple[str, dict[str, Any]]]:
    here = joined(place, name)
    listed = given.get(name, [])
    if not isinstance(listed, list):
        faults.note(here, _LISTED, value=listed)
        return
    for number, item in enumerate(listed):
        if isinstance(item, dict):
            yield f"{here}[{number}]", item
        else:
            faults.note(f"{here}[{number}]", "accepted: an object", value=item)
