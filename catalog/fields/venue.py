"""The fields of venues, beacons and geofences."""

from typing import Annotated, Any, NamedTuple

from pydantic import AliasChoices, Field, WithJsonSchema

from catalog.fields.base import Fields
from catalog.fields.reader import BLANK_IS_NULL, FieldError, reader
from catalog.fields.texts import ZONES, choice, colour, line, text, time_zone, uuid
from catalog.fields.values import INT32, boolean, integer, number

Name = Annotated[str, line()]
Flag = Annotated[bool, boolean]
Meters = Annotated[int, integer(0, INT32)]
Unsigned16 = Annotated[int, integer(0, 65535)]
Position = Annotated[int, integer(-INT32 - 1, INT32)]
Colour = Annotated[Annotated[str, colour] | None, BLANK_IS_NULL]
_OPTIONAL_ZONE = WithJsonSchema({"type": "string", "enum": sorted({*ZONES, ""})})
TimeZone = Annotated[Annotated[str, time_zone, _OPTIONAL_ZONE] | None, BLANK_IS_NULL]
Uuid = Annotated[str, uuid]
_name = line()


class Triple(NamedTuple):
    """uuid, major and minor: they name one beacon on the whole platform. `uuid` is canonical."""

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


class VenueInput(Fields):
    """A venue."""

    name: Name
    address: Annotated[str, text(None, shortest=0)]
    active: Flag
    width: Meters | None = Field(None, validation_alias=AliasChoices("width", "with"))
    height: Meters | None = None
    image: Annotated[Annotated[str, line(None, shortest=0)] | None, BLANK_IS_NULL] = Field(
        None, validation_alias=AliasChoices("image", "map")
    )
    time_zone: TimeZone = None


class TripleFields(Fields):
    """The three fields that name a beacon."""

    uuid: Uuid
    major: Unsigned16
    minor: Unsigned16


class BeaconFields(TripleFields):
    """A beacon without its tags."""

    name: Name
    active: Flag
    proximity: Annotated[str, choice("immediate", "near", "far")]
    x: Position | None = None
    y: Position | None = None
    color: Colour = None


class GeofenceInput(Fields):
    """A geofence."""

    name: Name
    longitude: Annotated[float, number(-180, 180)]
    latitude: Annotated[float, number(-90, 90)]
    radius: Annotated[int, integer(1, INT32)]
    active: Flag
