"""Finds the active places at which detections were made, in the recorder's transaction."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache

from engine.kafka.detections import DecodedDetection, TagKey
from engine.recorder.ledger import ActivePlace, CircleRow, LedgerTransaction
from rules.geofences import Circle, GeofenceGrid

# The active places of a detection: several for a position, in the order of their ids.
PlacesOf = Callable[[DecodedDetection], Sequence[ActivePlace]]


async def find_places(
    transaction: LedgerTransaction, batch: Collection[DecodedDetection]
) -> PlacesOf:
    """Look up what the detections name; the answer tells their places."""
    unkeyed = [each for each in batch if each.key is None]  # positions and tags
    # No application has a key with a NUL character, and PostgreSQL does not take one.
    api_keys = {text for each in unkeyed if "\0" not in (text := each.message.api_key or "\0")}
    applications = await transaction.applications(api_keys)
    companies = {  # of positions and tags, by the id() of the detection
        id(each): application.company_id
        for each in unkeyed
        if (application := applications.get(each.message.api_key or ""))
        and application.admits(each.detected_at)
    }
    keys = {key for each in batch if (key := each.key or _tag_key(each, companies))}
    found = await transaction.active_places(keys)
    positioned = {companies.get(id(each), -1) for each in unkeyed if each.message.position}
    circles = await transaction.active_circles(positioned)
    grids = {company: _grid_of(tuple(rows)) for company, rows in circles.items()}

    def places_of(each: DecodedDetection) -> Sequence[ActivePlace]:
        at = each.message.position
        if each.key is None and at is not None:
            grid, places = grids.get(companies.get(id(each), -1)) or _grid_of(())
            inside = grid.containing(at.latitude, at.longitude)
            return [places[circle.id] for circle in inside if circle.admits(at.accuracy)]
        key = each.key or _tag_key(each, companies)
        place = None if key is None else found.get(key)
        return () if place is None else (place,)

    return places_of


@lru_cache(maxsize=20)  # companies, of at most 10,000 geofences unless a setting says otherwise
def _grid_of(rows: tuple[CircleRow, ...]) -> tuple[GeofenceGrid, dict[int, ActivePlace]]:
    places = {row[0]: ActivePlace(*row[:4])._replace(kind="geofence") for row in rows}
    return GeofenceGrid(Circle(row[0], *row[4:]) for row in rows), places


def _tag_key(detection: DecodedDetection, companies: Mapping[int, int]) -> TagKey | None:
    tag, company = detection.message.tag, companies.get(id(detection))
    if tag is None or company is None or "\0" in tag.value:
        return None
    return TagKey(company, tag.kind, tag.value)
