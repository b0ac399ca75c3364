"""Finds the active places at which detections were made, in the recorder's transaction."""

from collections.abc import Callable, Collection, Mapping, Sequence

from engine.kafka.detections import DecodedDetection, TagKey
from engine.recorder.ledger import ActivePlace, CircleRow, LedgerTransaction
from rules.geofences import Circle, GeofenceGrid

_MOST_CIRCLES = 200_000  # kept

# The active places of a detection: several for a position, in the order of their ids.
PlacesOf = Callable[[DecodedDetection], Sequence[ActivePlace]]


class PlaceFinder:
    """Looks up places. A company's grid of geofences is kept while its rows in SQL are the same."""

    def __init__(self) -> None:
        self._grids: dict[int, _CompanyGrid] = {}

    async def find(
        self, transaction: LedgerTransaction, batch: Collection[DecodedDetection]
    ) -> PlacesOf:
        """Look up what the detections name; the answer tells their places."""
        unkeyed = [each for each in batch if each.key is None]  # positions and tags
        companies = await self._companies(transaction, unkeyed)
        keys = {key for each in batch if (key := each.key or _tag_key(each, companies))}
        found = await transaction.active_places(keys)
        positioned = {companies.get(id(each), -1) for each in unkeyed if each.message.position}
        grids = self._grids_of(await transaction.active_circles(positioned))

        def places_of(each: DecodedDetection) -> Sequence[ActivePlace]:
            if each.key is None and each.message.position is not None:
                grid = grids.get(companies.get(id(each), -1))
                return () if grid is None else grid.places_of(each)
            key = each.key or _tag_key(each, companies)
            place = None if key is None else found.get(key)
            return () if place is None else (place,)

        return places_of

    async def _companies(
        self, transaction: LedgerTransaction, unkeyed: Collection[DecodedDetection]
    ) -> dict[int, int]:
        """The companies of positions and tags, by the id() of the detection."""
        # No application has a key with a NUL character, and PostgreSQL does not take one.
        keys = {key for each in unkeyed if "\0" not in (key := each.message.api_key or "\0")}
        applications = await transaction.applications(keys)
        return {
            id(each): application.company_id
            for each in unkeyed
            if (application := applications.get(each.message.api_key or ""))
            and application.admits(each.detected_at)
        }

    def _grids_of(self, rows: Mapping[int, Sequence[CircleRow]]) -> "dict[int, _CompanyGrid]":
        found = {}
        for company, circles in rows.items():
            grid = self._grids.pop(company, None)
            if grid is None or grid.rows != circles:
                grid = _CompanyGrid(circles)
            found[company] = self._grids[company] = grid  # the newest last
        while sum(len(grid.rows) for grid in self._grids.values()) > _MOST_CIRCLES:
            del self._grids[next(iter(self._grids))]
        return found


class _CompanyGrid:
    def __init__(self, rows: Sequence[CircleRow]) -> None:
        self.rows = rows
        self._places = {row[0]: ActivePlace(*row[:4])._replace(kind="geofence") for row in rows}
        self._grid = GeofenceGrid(Circle(row[0], *row[4:]) for row in rows)

    def places_of(self, detection: DecodedDetection) -> list[ActivePlace]:
        at = detection.message.position
        assert at is not None  # noqa: S101  # by the caller
        inside = self._grid.containing(at.latitude, at.longitude)
        return [self._places[circle.id] for circle in inside if circle.admits(at.accuracy)]


def _tag_key(detection: DecodedDetection, companies: Mapping[int, int]) -> TagKey | None:
    tag, company = detection.message.tag, companies.get(id(detection))
    if tag is None or company is None or "\0" in tag.value:
        return None
    return TagKey(company, tag.kind, tag.value)
