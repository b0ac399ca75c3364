"""What paths have in common: the version in front, and the parameters in them."""

from typing import Annotated

from fastapi import Path

from catalog.fields.values import INT64

PREFIX = "/v2"
VenueId = Annotated[int, Path(alias="id", ge=1, le=INT64, description="The venue.")]
RecordId = Annotated[int, Path(alias="uid", ge=1, le=INT64, description="The record in the venue.")]
DeviceId = Annotated[int, Path(alias="id", ge=1, le=INT64, description="The device.")]
