"""Path parameters and bounds that the routes share, and the prefix of the version."""

from typing import Annotated, Any

from fastapi import Path
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from catalog.fields.values import INT64

PREFIX = "/v2"
VenueId = Annotated[int, Path(alias="id", ge=1, le=INT64, description="The venue.")]
RecordId = Annotated[int, Path(alias="uid", ge=1, le=INT64, description="The record in the venue.")]
ApplicationId = Annotated[int, Path(alias="id", ge=1, le=INT64, description="The application.")]
DeviceId = Annotated[int, Path(alias="id", ge=1, le=INT64, description="The device.")]


def numbers_of(route: APIRoute) -> dict[str, tuple[int, int]]:
    """The lowest and highest value of each numeric parameter of a route, by its name."""
    dependant = route.dependant
    found = {}
    for parameter in (*dependant.path_params, *dependant.query_params):
        info: Any = parameter.field_info
        schema = TypeAdapter(Annotated[info.annotation, info]).json_schema()
        for one in (schema, *schema.get("anyOf", [])):
            if "minimum" in one:
                found[parameter.alias] = (int(one["minimum"]), int(one["maximum"]))
    return found
