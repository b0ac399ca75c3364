"""The fields of venues, beacons and geofences."""

from typing import Any, NamedTuple

from catalog.fields.display import colour
from catalog.fields.reader import FieldError, reader
from catalog.fields.reading import Field
from catalog.fields.values import (
    INT32,
    boolean,
    choice,
    integer,
    line,
    number,
    text,
    time_zone,
    uuid,
)

_UNSIGNED16 = integer(0, 65535)
_POSITION = integer(-INT32 - 1, INT32)
_name = line()


class Triple(NamedTuple):
    """What names one beacon on the whole platform; `uuid` in canonical form."""

    uuid: str
    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.uuid}:{self.major}:{self.minor}"


@reader(
    type="array",
    items={
        "anyOf": [
            {"type": "object", "required": ["name"], "properties": {"name": _name.schema}},
            _name.schema,
        ]
    },
)
def names(value: Any) -> list[str]:
    """A list of names, or of objects that have one; each name once, in order."""
    try:
        if not isinstance(value, list):
            raise TypeError  # noqa: TRY301  # a string is a sequence of names, too
        listed = [_name(item["name"] if isinstance(item, dict) else item) for item in value]
    except (KeyError, TypeError, FieldError):
        raise FieldError('accepted: a list of objects {"name": string}, or of names') from None
    return list(dict.fromkeys(listed))


VENUE = (
    Field(name="name", read=line(), required=True),
    Field(name="address", read=text(None, shortest=0), required=True),
    Field(name="active", read=boolean, required=True),
    Field(name="width", also=("with",), read=integer(0, INT32), nullable=True),
    Field(name="height", read=integer(0, INT32), nullable=True),
    Field(name="image", also=("map",), read=line(None, shortest=0), nullable=True, blank=True),
    Field(name="time_zone", read=time_zone, nullable=True, blank=True),
)
TRIPLE = (
    Field(name="uuid", read=uuid, required=True),
    Field(name="major", read=_UNSIGNED16, required=True),
    Field(name="minor", read=_UNSIGNED16, required=True),
)
BEACON = (
    Field(name="name", read=line(), required=True),
    *TRIPLE,
    Field(name="active", read=boolean, required=True),
    Field(name="proximity", read=choice("immediate", "near", "far"), required=True),
    Field(name="x", read=_POSITION, nullable=True),
    Field(name="y", read=_POSITION, nullable=True),
    Field(name="color", read=colour, nullable=True, blank=True),
    Field(name="tags", read=names),
)
GEOFENCE = (
    Field(name="name", read=line(), required=True),
    Field(name="longitude", read=number(-180, 180), required=True),
    Field(name="latitude", read=number(-90, 90), required=True),
    Field(name="radius", read=integer(1, INT32), required=True),
    Field(name="active", read=boolean, required=True),
)
