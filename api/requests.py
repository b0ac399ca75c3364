"""The bodies of requests, where they differ from a catalog file's records."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from catalog.fields.base import ABSENT, SECRET, Fields, required
from catalog.fields.campaign import CampaignFields, Instant
from catalog.fields.reader import FieldError, Schema, any_case, reader
from catalog.fields.texts import DEEPEST, choice, is_plain, text
from catalog.fields.values import INT64, integer
from catalog.fields.venue import BeaconFields, Flag, Name, Triple, TripleFields
from catalog.models import WEEKDAYS
from catalog.passwords import MIN_PASSWORD_LENGTH

_MOST = 1000
_FILLED = text(None).schema
Id = Annotated[int, integer(1, INT64)]
Reference = int | str | Triple


class Credentials(Fields):
    """The e-mail and password of a sign-in."""

    email: Annotated[str, text(1024)]
    password: Annotated[str, text(1024), SECRET]


class PasswordChange(Fields):
    """The current password of an account, and the new one."""

    old_password: Annotated[str, text(1024), SECRET]
    new_password: Annotated[str, text(1024, shortest=MIN_PASSWORD_LENGTH), SECRET]


class RecordById(Fields):
    """A record of the company by its id."""

    id: Id


class TagByName(Fields):
    """A tag of the company by its name; a new name creates a tag."""

    name: Name


def _listed(accepted: str) -> Any:
    return Field(max_length=_MOST, description=f"a list of at most {_MOST} {accepted}")


_IN_ORDER = Field(union_mode="left_to_right")
ById = Annotated[RecordById, AfterValidator(lambda record: record.id)]
ByName = Annotated[TagByName, AfterValidator(lambda tag: tag.name)]
ByTriple = Annotated[TripleFields, AfterValidator(lambda b: Triple(b.uuid, b.major, b.minor))]
Tags = Annotated[
    list[Annotated[ByName | ById | Name, _IN_ORDER]],
    _listed('objects {"name": string} or {"id": integer}, or names'),
]
Beacons = Annotated[
    list[Annotated[ById | ByTriple | Id, _IN_ORDER]],
    _listed("beacons by id, or by uuid, major and minor"),
]
Geofences = Annotated[list[Annotated[ById | Id, _IN_ORDER]], _listed("geofences by id")]


@reader(type="array", items={}, maxItems=_MOST)
def shallow_list(value: Any) -> list[Any]:
    """A list of any values. Nesting is limited, because JSON encoders and decoders have limits."""
    if not isinstance(value, list) or len(value) > _MOST or not is_plain(value):
        raise FieldError(
            f"accepted: a list of at most {_MOST}, nested {DEEPEST} deep at most, without NUL "
            "characters"
        )
    return value


ShallowList = Annotated[list[Any], shallow_list]


class BeaconInput(BeaconFields):
    """A beacon with its tags."""

    tags: Tags = ABSENT


@required("start_minute", "end_minute")
class CampaignEdit(CampaignFields):
    """A campaign with its references to other records; weekdays may be absent."""

    nfcs: ShallowList = ABSENT
    qrcodes: ShallowList = ABSENT
    tags: Tags = ABSENT
    beacons: Beacons = ABSENT
    geofencings: Geofences = ABSENT

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> Schema:
        """The schema, in which the field that `format` names is not empty."""
        schema = super().__get_pydantic_json_schema__(core, handler)
        schema["anyOf"] = [_case("connector")]
        for name in ("template", "url", "html"):
            case = _case(name)
            (accepted, _null) = schema["properties"][name]["anyOf"]
            case["properties"][name] = {"allOf": [accepted, _FILLED]}
            if not cls.model_fields["monday"].is_required():
                # An edit may leave the content as it is stored.
                case["required"].remove(name)
            schema["anyOf"].append(case)
        return schema


@required(*WEEKDAYS)
class CampaignCreate(CampaignEdit):
    """A new campaign with its references to other records."""


def _case(word: str) -> Schema:
    pattern = f"^(?:{any_case(word)})$"
    required = ["format"] if word == "connector" else ["format", word]
    return {"properties": {"format": {"type": "string", "pattern": pattern}}, "required": required}


class ExplainQuestion(Fields):
    """The detection that a campaign is explained for; every field may be absent."""

    at: Instant = Field(ABSENT, json_schema_extra={"description": "Default: now."})
    beacon: Annotated[
        ById | ByTriple | Id,
        _IN_ORDER,
        Field(description="a beacon by id, or by uuid, major and minor"),
    ] = ABSENT
    proximity: Annotated[str, choice("immediate", "near", "far", "unknown")] = ABSENT
    udid: Annotated[str, text(255)] = ABSENT


class DeviceUpdate(Fields):
    """The test flag of a device: alone, or within the device's detail as it was read."""

    test: Flag

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> Schema:
        """The flag alone, or in an object of one of two arrays."""
        flag = handler.resolve_ref_schema(handler(core))["properties"]
        item = {"type": "object", "required": ["test"], "properties": flag}
        alone = item | {"allOf": [{"not": {"required": [name]}} for name in ("device", "datas")]}
        own = item | {"not": {"required": ["id"]}}
        array = {"type": "array", "minItems": 1, "items": own}
        device, datas = (
            {"type": "object", "required": [name], "properties": {name: array}}
            for name in ("device", "datas")
        )
        return {
            "description": "The flag alone, or the device's detail as it was read, or its `datas`.",
            "anyOf": [alone, device, datas | {"not": {"required": ["device"]}}],
        }
