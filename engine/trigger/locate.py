"""Finds the places of positions and scanned tags: those of their application's company."""

from collections.abc import Iterable
from typing import NamedTuple

from catalog.index.entries import ApplicationEntry, application_field, geofences_field
from engine.kafka.detections import BeaconKey, DecodedDetection, GeofenceKey, TagKey
from engine.trigger.beacon_index import BeaconIndex
from rules.decision import refusal
from rules.geofences import GeofenceGrid
from rules.model import Decision, Reason


class Located(NamedTuple):
    """Detections, each at one place. `refusals` are the decisions about those that are `nowhere`.

    `exits` counts the reports that a device left a geofence, which are no detections.
    `shares_records` says that a position may be in several geofences: its detections follow each
    other, in the order of the geofences' ids.
    """

    detections: list[DecodedDetection]
    nowhere: list[DecodedDetection]
    refusals: list[Decision]
    exits: int = 0
    shares_records: bool = False


async def locate(detections: list[DecodedDetection], index: BeaconIndex) -> Located:
    """Find the places of a batch; without I/O if its companies are cached. Waits as the index."""
    if all(each.key.__class__ is BeaconKey for each in detections):
        return Located(detections, [], [])
    keyless = [each for each in detections if each.key is None]
    applications = await index.company_data({_application(each) for each in keyless})
    by_position = [each for each in keyless if each.message.position is not None]
    owners = [applications[_application(each)] for each in by_position]
    fields = {geofences_field(owner.company_id) for owner in owners if owner is not None}
    grids = await index.company_data(fields)
    found = Located([], [], [], sum(map(_is_exit, detections)), bool(fields))
    for each in detections:
        if each.key is not None:
            if not _is_exit(each):
                found.detections.append(each)
            continue
        owner = applications[_application(each)]
        grid = None if owner is None else grids.get(geofences_field(owner.company_id))
        places = places_of(each, owner, grid)
        if isinstance(places, Decision):
            found.nowhere.append(each)
            found.refusals.append(places)
        else:
            found.detections.extend(places)
    return found


def places_of(
    detection: DecodedDetection, application: ApplicationEntry | None, grid: GeofenceGrid | None
) -> Iterable[DecodedDetection] | Decision:
    """A position or tag at each of its places, or why it has none.

    `grid` has the geofences of the application's company.
    """
    company, message = 0 if application is None else application.company_id, detection.message
    if application is None or not application.admits(detection.detected_at):
        return refusal(Reason.UNKNOWN_APPLICATION, company)
    if message.tag is not None:
        detection.key = TagKey(company, message.tag.kind, message.tag.value)
        return (detection,)
    position = message.position
    inside = []
    if position is not None and grid is not None:
        inside = grid.containing(position.latitude, position.longitude)
    if position is None or not inside:
        return refusal(Reason.OUTSIDE, company)
    accurate = [circle for circle in inside if circle.admits(position.accuracy)]
    if not accurate:
        return refusal(Reason.INACCURATE, company)
    record, zone, at, index = (
        detection.record,
        detection.zone,
        detection.detected_at,
        detection.index,
    )
    return [
        DecodedDetection(record, message, GeofenceKey(circle.id), zone, at, index)
        for circle in accurate
    ]


def _application(detection: DecodedDetection) -> str:
    return application_field(detection.message.api_key or "")


def _is_exit(detection: DecodedDetection) -> bool:
    geofence = detection.message.geofence
    return geofence is not None and geofence.transition == "exit"
