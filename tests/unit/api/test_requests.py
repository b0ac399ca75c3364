"""The bodies of requests: references in each form, other spellings, and their schemas."""

from typing import Any

import pytest

from api.requests import BeaconInput, CampaignCreate, CampaignEdit, Credentials
from catalog.fields.base import Faults, Fields, read_fields
from catalog.fields.venue import Triple, VenueInput
from catalog.models import WEEKDAYS

UUID = "f7826da6-4fa2-4e98-8024-bc5b71e0893e"


def read(model: type[Fields], **given: Any) -> tuple[dict[str, Any], dict[str, str]]:
    faults = Faults()
    values = read_fields(model, given, faults=faults, require=False)
    return values, {fault.place: fault.message for fault in faults}


def test_references_in_each_form() -> None:
    values, faults = read(
        CampaignEdit,
        tags=["a", {"name": "b", "id": 1}, {"id": "2"}],
        beacons=[3, "4", {"id": 5, "uuid": "as read"}, {"uuid": UUID, "major": "1", "minor": 2}],
        geofencings=[6, {"id": 7}],
    )
    assert faults == {}
    assert values == {
        "tags": ["a", "b", 2],
        "beacons": [3, 4, 5, Triple(UUID, 1, 2)],
        "geofencings": [6, 7],
    }


@pytest.mark.parametrize(
    "tags", ["a", {"name": "a"}, [3], [{}], [{"id": 0}], [""], [None], ["a"] * 1001, [["a"]]]
)
def test_a_bad_list_says_what_is_accepted(tags: Any) -> None:
    values, faults = read(BeaconInput, tags=tags)
    assert values == {}
    accepted = 'accepted: a list of at most 1000 objects {"name": string} or {"id": integer}'
    assert accepted in faults["tags"]


def test_a_new_campaign_needs_its_weekdays_and_an_edit_does_not() -> None:
    created, edited = Faults(), Faults()
    read_fields(CampaignCreate, {}, faults=created)
    read_fields(CampaignEdit, {}, faults=edited)
    assert {f.place for f in created} - {f.place for f in edited} == set(WEEKDAYS)
    assert {"start_time", "end_time"} <= {f.place for f in edited}


def test_a_schema_lists_each_spelling() -> None:
    venue = VenueInput.model_json_schema()
    assert {"width", "with", "image", "map"} <= venue["properties"].keys()
    assert venue["required"] == ["name", "address", "active"]
    campaign = CampaignCreate.model_json_schema()
    either = {"anyOf": [{"required": ["tuesday"]}, {"required": ["thuesday"]}]}
    assert campaign["allOf"] == [either]
    assert "monday" in campaign["required"]
    assert "tuesday" not in campaign["required"]
    assert Credentials.model_json_schema()["properties"]["password"]["writeOnly"] is True
