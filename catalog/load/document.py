"""Reads a catalog document and finds the faults that need no database."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Annotated, Any, NamedTuple

import orjson

from catalog.fields import (
    ABSENT,
    Conflicts,
    Faults,
    Fields,
    joined,
    note_unknown,
    read_fields,
    spellings,
)
from catalog.inputs import (
    AccountFields,
    ApplicationFields,
    BeaconFields,
    CampaignFields,
    CompanyFields,
    ConnectorInput,
    DeviceFields,
    GeofenceInput,
    Triple,
    TripleFields,
    VenueInput,
    campaign_conflicts,
    connector_conflicts,
    names,
)

# Fields of the interface's answers. A file that was made from an answer may hold them; ignored.
_READ_ONLY = ("id", "create_on", "update_on", "nb_beacon", "nb_campaign")


@dataclass
class DocumentRecord:
    """A record of the document: its place, the attributes that it gives, and the records in it.

    `inside` has the records by kind: accounts, applications, connector, devices and venues of a
    company; beacons, geofences and campaigns of a venue. A campaign's `beacons` are values, as
    (place, triple) pairs.
    """

    place: str
    values: dict[str, Any]
    inside: defaultdict[str, list["DocumentRecord"]] = field(
        default_factory=lambda: defaultdict(list)
    )

    @property
    def triple(self) -> Triple | None:
        """The triple of a beacon, if all three fields are accepted."""
        return _triple(self.values)


class LoadedBeacon(BeaconFields):
    """A beacon with the names of its tags."""

    tags: Annotated[list[str], names] = ABSENT


class LoadedCampaign(CampaignFields):
    """A campaign with the names of its tags and geofences; its beacons are read separately."""

    tags: Annotated[list[str], names] = ABSENT
    geofencings: Annotated[list[str], names] = ABSENT


class _Kind(NamedTuple):
    """The fields of a kind of record, the lists in it, and the check of fields together."""

    model: type[Fields]
    lists: tuple[str, ...] = ()
    conflicts: Conflicts = lambda _: ()


_KINDS = {
    "companies": _Kind(CompanyFields, ("accounts", "applications", "devices", "venues")),
    "accounts": _Kind(AccountFields),
    "applications": _Kind(ApplicationFields),
    "connector": _Kind(ConnectorInput, conflicts=connector_conflicts),
    "devices": _Kind(DeviceFields),
    "venues": _Kind(VenueInput, ("beacons", "geofences", "geofencings", "campaigns")),
    "beacons": _Kind(LoadedBeacon),
    "geofences": _Kind(GeofenceInput),
    "campaigns": _Kind(LoadedCampaign, conflicts=campaign_conflicts),
}
# Fields that are no attributes of the kind's model and no lists of records.
_APART = {"companies": ("connector",), "campaigns": ("beacons",)}
_OTHER_NAMES = {"geofencings": "geofences"}


def read_document(raw: bytes, faults: Faults) -> list[DocumentRecord]:
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
    return list(_records("companies", document, "", faults))


def triples_in(company: DocumentRecord) -> list[Triple]:
    """Every triple that a company names, for its beacons and its campaigns' targets, once."""
    found: dict[Triple | None, None] = {}
    for venue in company.inside["venues"]:
        found.update((beacon.triple, None) for beacon in venue.inside["beacons"])
        for campaign in venue.inside["campaigns"]:
            found.update((triple, None) for _, triple in campaign.values.get("beacons", []))
    return [triple for triple in found if triple is not None]


def _records(
    name: str, given: dict[str, Any], place: str, faults: Faults
) -> Iterator[DocumentRecord]:
    for here, listed in _objects(given, name, place, faults):
        yield _record(_OTHER_NAMES.get(name, name), here, listed, faults)


def _record(name: str, place: str, given: dict[str, Any], faults: Faults) -> DocumentRecord:
    kind = _KINDS[name]
    known = [*chain(*spellings(kind.model).values()), *kind.lists, *_APART.get(name, ())]
    note_unknown(known, [n for n in given if n not in _READ_ONLY], place=place, faults=faults)
    item = DocumentRecord(place, read_fields(kind.model, given, place=place, faults=faults))
    if name == "campaigns" and "beacons" in given:
        item.values["beacons"] = list(_targets(given, place, faults))
    faults.note_conflicts(place, kind.conflicts(item.values))
    for listed in kind.lists:
        item.inside[_OTHER_NAMES.get(listed, listed)] += _records(listed, given, place, faults)
    if name == "companies" and given.get("connector") is not None:
        here = f"{place}.connector"
        if isinstance(given["connector"], dict):
            item.inside["connector"] = [_record("connector", here, given["connector"], faults)]
        else:
            faults.note(here, "accepted: an object")
    return item


def _targets(given: dict[str, Any], place: str, faults: Faults) -> Iterator[tuple[str, Triple]]:
    for here, listed in _objects(given, "beacons", place, faults):
        triple = _triple(read_fields(TripleFields, listed, place=here, faults=faults))
        if triple is not None:
            yield here, triple


def _triple(values: dict[str, Any]) -> Triple | None:
    if {"uuid", "major", "minor"} <= values.keys():
        return Triple(values["uuid"], values["major"], values["minor"])
    return None


def _objects(
    given: dict[str, Any], name: str, place: str, faults: Faults
) -> Iterator[tuple[str, dict[str, Any]]]:
    here = joined(place, name)
    listed = given.get(name, [])
    if not isinstance(listed, list):
        faults.note(here, "accepted: a list of objects", value=listed)
        return
    for number, item in enumerate(listed):
        if isinstance(item, dict):
            yield f"{here}[{number}]", item
        else:
            faults.note(f"{here}[{number}]", "accepted: an object", value=item)
