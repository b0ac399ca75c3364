"""Records that a document names twice."""

from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from catalog.fields.reading import Faults
from catalog.load.document import CompanyItem, Item, triple_of

_Named = tuple[Hashable, str]


def note_repeats(companies: Iterable[CompanyItem], faults: Faults) -> None:
    """Note each record whose natural key stands elsewhere in the document, and where."""
    first: dict[Hashable, str] = {}
    for key, place in _keys(companies):
        seen = first.setdefault(key, place)
        if seen != place:
            faults.note(place, f"the same as {seen}")


def _keys(companies: Iterable[CompanyItem]) -> Iterator[_Named]:
    for company in companies:
        name = company.values.get("name", company.place)
        yield ("company", name), f"{company.place}.name"
        yield from _of(company.accounts, "email", "account")
        yield from _of(company.applications, "api_key", "application")
        yield from _of(company.devices, "udid", "device", name)
        yield from _of(company.venues, "name", "venue", name)
        for venue in company.venues:
            yield from _of(venue.geofences, "name", "geofence", venue.place)
            yield from _of(venue.campaigns, "name", "campaign", venue.place)
            for beacon in venue.beacons:
                if triple := triple_of(beacon.values):
                    yield triple, beacon.place


def _of(items: Iterable[Item], attribute: str, *within: Any) -> Iterator[_Named]:
    for item in items:
        if attribute in item.values:
            yield (*within, item.values[attribute]), f"{item.place}.{attribute}"
