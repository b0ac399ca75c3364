"""Finds the places of positions and scanned tags: those of their application's company."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from catalog.index.entries import ApplicationEntry, application_field, geofences_field, rules_field
from engine.kafka.detections import BeaconKey, DecodedDetection, GeofenceKey, TagKey, find_keys
from engine.trigger.place_index import PlaceIndex
from rules.decision import refusal
from rules.geofences import GeofenceGrid
from rules.model import Decision, Reason


class Located(NamedTuple):
    """Detections, each at one place. `refusals` are the decisions about those that are `nowhere`.

    `left` are the reports that a device left a geofence, which are no detections.
    `grids` has the geofences of the companies with positions, which may be in several of them: such
    detections follow each other, in the order of the geofences' ids.
    """

    detections: list[DecodedDetection]
    nowhere: list[DecodedDetection]
    refusals: list[Decision]
    left: list[DecodedDetection] = []  # noqa: RUF012  # nobody changes it
    grids: Mapping[int, GeofenceGrid | None] = {}  # nobody changes it


async def locate(detections: list[DecodedDetection], index: PlaceIndex) -> Located:
    """Find the places of a batch; without I/O if its companies are cached. Waits as the index."""
    if all(each.key.__class__ is BeaconKey for each in detections):
        return Located(detections, [], [])
    keyless = [each for each in detections if each.key is None]
    fields = {key: application_field(key) for key in {_api_key(each) for each in keyless}}
    applications = await index.company_data(fields.values())
    owners = {key: applications[field] for key, field in fields.items()}
    at_positions = {_api_key(each) for each in keyless if each.message.position is not None}
    asked = [owner for key in at_positions if (owner := owners[key]) is not None]
    companies = {owner.company_id for owner in asked}
    # (The rules are for the compiled filter, which decides by what is cached.)
    fields_read = [
        field(company) for company in companies for field in (geofences_field, rules_field)
    ]
    read = await index.company_data(fields_read)
    grids = {company: read[geofences_field(company)] for company in companies}
    located, nowhere, refusals, left = list[DecodedDetection](), [], [], list[DecodedDetection]()
    for each in detections:
        if each.key is not None:
            if each.key.__class__ is GeofenceKey and is_exit(each):
                left.append(each)
            else:
                located.append(each)
            continue
        owner = owners[_api_key(each)]
        places = places_of(each, owner, None if owner is None else grids.get(owner.company_id))
        if isinstance(places, Decision):
            nowhere.append(each)
            refusals.append(places)
        else:
            located += places
    return Located(located, nowhere, refusals, left, grids)


def places_of(
    detection: DecodedDetection, application: ApplicationEntry | None, grid: GeofenceGrid | None
) -> Collection[DecodedDetection] | Decision:
    """A position or tag at each of its places, or why it has none.

    `grid` has the geofences of the application's company.
    """
    company, tag = 0 if application is None else application.company_id, detection.message.tag
    if tag is not None:
        detection.key = TagKey(company, tag.kind, tag.value)
    keys = find_keys(detection, application, grid)
    if isinstance(keys, Reason):
        return refusal(keys, company)
    detection.key = keys[0]
    return [detection, *(replace(detection, key=key) for key in keys[1:])]


def _api_key(detection: DecodedDetection) -> str:
    return detection.message.api_key or ""


def is_exit(detection: DecodedDetection) -> bool:
    """Whether it reports that a device left a geofence."""
    geofence = detection.message.geofence
    return geofence is not None and geofence.transition == "exit"
