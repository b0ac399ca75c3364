"""Faults that only show when a company has been written: limits that it passes now."""

from collections.abc import Iterable, Iterator

from sqlalchemy import true

from catalog.errors import LimitError
from catalog.fields.reading import Faults
from catalog.limits import CatalogLimits, check_venue_size
from catalog.load.writing import Writer
from catalog.models import Beacon, Campaign, Company
from catalog.open_campaigns import (
    CrowdedBeacon,
    Period,
    crowded_beacons,
    crowded_message,
    open_period,
)


async def check_room_left(
    writer: Writer, company: Company, limits: CatalogLimits, faults: Faults
) -> None:
    """Note the places that pass a limit, of what was written since this was asked last."""
    for place, (model, venue) in writer.added.items():
        try:
            await check_venue_size(writer.session, limits, model, venue.id)
        except LimitError as error:
            faults.note(place, str(error))
    if writer.grown:
        grown = _Grown(writer.grown)
        async for crowd in crowded_beacons(writer.session, limits, company.id, writer.now, true()):
            for place, peak in grown.in_crowd(crowd):
                faults.note(place, crowded_message(limits, crowd, peak))
    writer.added.clear()
    writer.grown.clear()


class _Grown:
    """The records that have grown; each is found in one crowd only."""

    def __init__(self, grown: Iterable[tuple[str, Beacon | Campaign]]) -> None:
        self._beacons: dict[int, str] = {}
        self._campaigns: dict[int, tuple[str, Period]] = {}
        self._seen: set[frozenset[int]] = set()
        for place, record in grown:
            if isinstance(record, Campaign):
                self._campaigns[record.id] = (place, open_period(record))
            else:
                self._beacons[record.id] = place

    def in_crowd(self, crowd: CrowdedBeacon) -> Iterator[tuple[str, int]]:
        """Their places, and how many are open there at once."""
        if place := self._beacons.pop(crowd.beacon_id, None):
            yield place, crowd.peak()
        if crowd.campaigns in self._seen:  # many beacons with one tag
            return
        self._seen.add(crowd.campaigns)
        for number in sorted(crowd.campaigns & self._campaigns.keys()):
            place, span = self._campaigns[number]
            if peak := crowd.peak(span):
                del self._campaigns[number]
                yield place, peak
