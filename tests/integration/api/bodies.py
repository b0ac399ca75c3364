"""Bodies of requests: the document's examples, each with names of its own."""

from itertools import count
from typing import Any

from api.openapi import examples


class Bodies:
    """Valid bodies; keywords change fields, None removes one."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def venue(self, **other: Any) -> dict[str, Any]:
        return self._named(examples.VENUE, other)

    def beacon(self, **other: Any) -> dict[str, Any]:
        return self._named(examples.BEACON, {"minor": next(self._numbers)} | other)

    def geofence(self, **other: Any) -> dict[str, Any]:
        return self._named(examples.GEOFENCE, other)

    def campaign(self, **other: Any) -> dict[str, Any]:
        return self._named(examples.CAMPAIGN, other)

    def connector(self, **other: Any) -> dict[str, Any]:
        return self._named(examples.CONNECTOR | {"url": "http://127.0.0.1:9/offers"}, other)

    def _named(self, example: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        body = example | {"name": f"{example['name']} {next(self._numbers)}"} | other
        return {name: value for name, value in body.items() if value is not None}
