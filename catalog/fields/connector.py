"""The fields of a connector. `parameters` and `secret` are in plain text here: encrypt to store."""

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any

from catalog.fields.base import SECRET, Fields
from catalog.fields.reader import FieldError, reader
from catalog.fields.texts import choice, line, text, web_address
from connectors.request import is_reserved

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_LONGEST = 16_384
_ACCEPTED = (
    'accepted: a JSON list, also encoded as a string, of objects {"key": string, "value": string}'
)


_WRITTEN = r'\{"key": ?"[0-9A-Za-z-]{1,40}", ?"value": ?"[ !#-\[\]-~]{0,80}"\}'
_PARAMETER = {
    "type": "object",
    "required": ["key", "value"],
    "additionalProperties": False,
    "properties": {
        "key": {"type": "string", "pattern": "^[0-9A-Za-z-]{1,64}$"},
        "value": {"type": "string", "pattern": "^[ -~]{0,256}$"},
    },
}


@reader(
    anyOf=[
        {
            "type": "string",
            "contentMediaType": "application/json",
            "pattern": rf"^ *\[(?:{_WRITTEN}(?:, ?{_WRITTEN}){{0,9}})?\] *$",
            "examples": ['[{"key": "token", "value": "abc"}]'],
        },
        {"type": "array", "items": _PARAMETER, "maxItems": 32},
    ],
)
def parameters(value: Any) -> str:
    """The JSON text of the list. A list that is given as text is stored as written."""
    try:
        listed = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        raise FieldError(_ACCEPTED) from None
    if not isinstance(listed, list) or not all(_is_parameter(item) for item in listed):
        raise FieldError(_ACCEPTED)
    if not all(item["key"].isprintable() and item["value"].isprintable() for item in listed):
        raise FieldError("accepted: keys and values without control characters")
    written = value if isinstance(value, str) else json.dumps(listed, ensure_ascii=False)
    if len(written) > _LONGEST:
        raise FieldError(f"accepted: at most {_LONGEST} characters")
    return written


def _is_parameter(item: Any) -> bool:
    return (
        isinstance(item, dict)
        and item.keys() == {"key", "value"}
        and all(isinstance(part, str) for part in item.values())
        and item["key"] != ""
    )


Parameters = Annotated[str, parameters, SECRET]


class ConnectorInput(Fields):
    """A connector."""

    name: Annotated[str, line()]
    url: Annotated[str, web_address]
    method: Annotated[str, choice("GET", "POST")]
    auth: Annotated[str, choice("header", "get")]
    parameters: Parameters
    secret: Annotated[Annotated[str, text(512)] | None, SECRET] = None


def connector_conflicts(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Faults in the combination of fields, as (field, message) pairs."""
    if "auth" not in values or "parameters" not in values:
        return []
    keys = [item["key"] for item in json.loads(values["parameters"])]
    if values["auth"] == "header" and not all(_HEADER_NAME.fullmatch(key) for key in keys):
        return [("parameters", "accepted with auth header: keys that are names of HTTP headers")]
    method, place = values.get("method", ""), values["auth"]
    own = [key[:64] for key in keys if is_reserved(key, method=method, place=place)]
    if not own:
        return []
    names = ", ".join(own[:8])
    return [("parameters", f"accepted: keys other than {names}, which the request itself sets")]
