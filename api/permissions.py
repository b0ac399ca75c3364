"""Which permission area each kind of record belongs to, and the check of it.

Level 1 of an area permits reading and explaining, level 2 also creating, changing, deleting and
testing. Signing out and changing one's own password need a session and no level. Deleting a venue
also deletes its records, and needs only `region`. Explaining a campaign for one device needs `crm`
too. The audit shows the kinds of record that the account may read. The other areas
(device, tag, fidelity, form) are stored and returned, but no operation needs them.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from fastapi import Depends
from starlette.requests import Request

from api.answers import bad_fields, forbidden, no_session
from api.bodies import MOST_LISTED, accepted, read_json, read_object
from api.services import Services
from api.sessions import SignedIn
from catalog.audit import Author, set_author
from catalog.fields import Conflicts, Fields
from catalog.inputs import NOTHING, READ, WRITE

AREAS = {
    "profile": "profile",
    "company": "profile",
    "application": "profile",
    "device": "crm",
    "venue": "region",
    "geofence": "region",
    "nfc": "nfc",
    "qrcode": "qrcode",
    "beacon": "beacon",
    "campaign": "campaign",
    "connector": "connector",
    "statistics": "analytic",
    "live decision": "realtime",
    "role state": "realtime",
    "audit": "profile",
}
PREFIX = "/v2"
KEY_HEADER = "x-service-key"
TOKEN_HEADER = "x-service-token"  # noqa: S105  # a header's name

_REQUIRED = {
    KEY_HEADER: "required: the account's e-mail",
    TOKEN_HEADER: "required: the token that POST /auth answered",
}


@dataclass(frozen=True, kw_only=True)
class AuthorizedCaller:
    """A signed-in account that may make this request."""

    account: SignedIn
    services: Services
    request: Request
    token: str

    @property
    def company_id(self) -> int:
        """The company whose records the caller sees."""
        return self.account.company_id

    async def body(self) -> dict[str, Any]:
        """The object in the request's body. Raises ApiError."""
        limits = self.services.limits
        return await read_object(
            self.request, longest=limits.body_bytes, seconds=limits.body_seconds
        )

    async def listed(self) -> dict[str, Any] | list[dict[str, Any]]:
        """The object in the request's body, or the list of objects. Raises ApiError."""
        limits = self.services.limits
        body: Any = await read_json(
            self.request, longest=limits.body_bytes, seconds=limits.body_seconds
        )
        items = body if isinstance(body, list) else [body]
        if 1 <= len(items) <= MOST_LISTED and all(isinstance(each, dict) for each in items):
            return body  # type: ignore[no-any-return]
        raise bad_fields({"body": f"accepted: an object, or a list of 1 to {MOST_LISTED} objects"})

    async def values(
        self, model: type[Fields], conflicts: Conflicts = lambda _: ()
    ) -> dict[str, Any]:
        """The body's values by attribute, as `api.bodies.accepted`. Raises ApiError."""
        return accepted(model, await self.body(), conflicts=conflicts)


def services_of(request: Request) -> Services:
    """The services of the application."""
    services: Services = request.app.state.services
    return services


def address_of(request: Request) -> str:
    """The address of the client. Behind a trusted proxy, the address that the proxy reports."""
    return request.client.host if request.client else ""


def may_read(record: str) -> Any:
    """A dependency: the caller, if the account may read records of this kind."""
    return Depends(_needs(AREAS[record], READ))


def may_write(record: str) -> Any:
    """A dependency: the caller, if the account may change records of this kind."""
    return Depends(_needs(AREAS[record], WRITE))


def signed_in() -> Any:
    """A dependency: the caller, whatever its levels, for operations on the account itself."""
    return Depends(_needs("", NOTHING))


def _needs(area: str, level: int) -> Callable[[Request], Awaitable[AuthorizedCaller]]:
    async def caller(request: Request) -> AuthorizedCaller:
        services = services_of(request)
        given = {name: request.headers.get(name, "") for name in _REQUIRED}
        if not all(given.values()):
            raise no_session(**{name: _REQUIRED[name] for name in given if not given[name]})
        token = given[TOKEN_HEADER]
        account = await services.sessions.find(given[KEY_HEADER], token)
        if account is None:
            raise no_session()
        request.scope["company"] = account.company_id
        set_author(
            Author(
                company_id=account.company_id,
                account_id=account.account_id,
                email=account.email,
                request=request.scope.get("request_id", ""),
            )
        )
        if account.level(area) < level:
            raise forbidden(area, level)
        return AuthorizedCaller(account=account, services=services, request=request, token=token)

    return caller
