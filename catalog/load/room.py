"""Faults that only show when a company has been written: limits that it passes now."""

from collections.abc import Iterable, Iterator

from sqlalchemy import true

from catalog.crowding import Crowd, Span, crowd_message, crowds, span_of
from catalog.fields.reading import Faults
from catalog.limits import CatalogLimits, LimitError, check_room
from catalog.load.writing import Writer
from catalog.models import Beacon, Campaign, Company


async def check_room_left(
    writer: Writer, company: Company, limits: CatalogLimits, faults: Faults
) -> None:
    """Note the places that pass a limit, of what was written since this was asked last."""
    for place, (model, venue) in writer.added.items():
        try:
            await check_room(writer.session, limits, model, venue.id)
        except LimitError as error:
            faults.note(place, str(error))
    if writer.grown:
        grown = _Grown(writer.grown)
        async for crowd in crowds(writer.session, limits, company.id, writer.now, true()):
            for place, peak in grown.in_crowd(crowd):
                faults.note(place, crowd_message(limits, crowd, peak))
    writer.added.clear()
    writer.grown.clear()


class _Grown:
    """The records that have grown; each is found in one crowd only."""

    def __init__(self, grown: Iterable[tuple[str, Beacon | Campaign]]) -> None:
        self._beacons: dict[int, str] = {}
        self._campaigns: dict[int, tuple[str, Span]] = {}
        self._seen: set[frozenset[int]] = set()
        for place, record in grown:
            if isinstance(record, Campaign):
                self._campaigns[record.id] = (place, span_of(record))
            else:
                self._beacons[record.id] = place

    def in_crowd(self, crowd: Crowd) -> Iterator[tuple[str, int]]:
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
