"""A client generated from the document does an account holder's first tasks."""

import httpx
import pytest
from aiopenapi3 import OpenAPI

from tests.acceptance.api.process import EMAIL, PASSWORD, ApiProcess


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_generated_client_signs_in_and_manages_a_venue(served: ApiProcess) -> None:
    async with httpx.AsyncClient() as http:
        told = (await http.get(f"{served.url}/openapi.json")).text
    client = OpenAPI.loads(f"{served.url}/openapi.json", told)
    call = client._

    envelope = await call.authenticate(data={"email": EMAIL, "password": PASSWORD})
    client.authenticate(key=EMAIL, token=envelope.session.token)
    venue = await call.create_venue(data={"name": "Pier", "address": "2 Quai", "active": True})
    beacon = {
        "name": "Entrance",
        "uuid": "f7826da6-4fa2-4e98-8024-bc5b71e0893e",
        "major": 1,
        "minor": 1,
        "active": True,
        "proximity": "near",
    }
    made = await call.create_beacon(parameters={"id": venue.id}, data=beacon)
    listed = await call.list_beacons(parameters={"id": venue.id})
    assert [each.id for each in listed] == [made.id]
    assert str(listed[0].uuid) == beacon["uuid"]
