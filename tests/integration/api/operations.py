"""Every operation in the document, so that no test forgets one."""

from typing import Any, NamedTuple

from fastapi import FastAPI

from api.openapi import examples
from api.openapi.document import document

_BODIES = {
    "Credentials": examples.CREDENTIALS,
    "PasswordChange": examples.NEW_PASSWORD,
    "ApplicationInput": examples.APPLICATION,
    "VenueInput": examples.VENUE,
    "BeaconInput": examples.BEACON,
    "GeofenceInput": examples.GEOFENCE,
    "CampaignCreate": examples.CAMPAIGN,
    "CampaignEdit": examples.CAMPAIGN,
    "ConnectorInput": examples.CONNECTOR | {"url": "http://127.0.0.1:9/"},
    "DeviceUpdate": {"test": True},
    # (What a device was sent needs a level of its own.)
    "ExplainQuestion": {n: v for n, v in examples.EXPLAIN_QUESTION.items() if n != "udid"},
}


# Of the account itself: a session is enough.
OWN = ("DELETE /auth", "PUT /profile/password")
# They ask, and change nothing.
QUESTIONS = ("POST /lieu/{id}/campaign/{uid}/explain",)


class Operation(NamedTuple):
    """A method and the template of a path below /v2, with a body that is good."""

    method: str
    path: str
    body: dict[str, Any] | None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def filled(self, **ids: int) -> str:
        """The path with ids in it."""
        return self.path.format(**ids)


_found: list[Operation] = []


def operations(app: FastAPI) -> list[Operation]:
    """All but signing in; every application has the same."""
    if not _found:
        _found.extend(_operations(app))
    return _found.copy()


def _operations(app: FastAPI) -> list[Operation]:
    found = []
    for path, methods in document(app, "0")["paths"].items():
        for method, told in methods.items():
            content = told.get("requestBody", {}).get("content", {})
            name = content.get("application/json", {}).get("schema", {}).get("$ref", "/")
            body = _BODIES.get(name.rpartition("/")[2])
            found.append(Operation(method.upper(), path.removeprefix("/v2"), body))
    return [operation for operation in found if str(operation) != "POST /auth"]
