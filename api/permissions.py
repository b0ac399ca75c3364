"""Which permission area each kind of record belongs to, and the check of it.

    record       area        level 1        level 2
    profile      profile     read
    application  profile     list           create, update, delete
    device       crm         list, read,    update, delete
                             decisions,
                             held data
    venue        region      list, read     create, update, delete
    geofence     region      list, read     create, update, delete
    beacon       beacon      list, read     create, update, delete
    campaign     campaign    list, read,    create, update, delete
                             explain
    connector    connector   read, calls    update, delete, test
    statistics   analytic    read, recent
    live         realtime    read
    decision,
    role state
    audit        profile     list, of the kinds of record that the account may read

Signing out and changing one's own password need a session and no level. Deleting a venue also
deletes its records, and needs only `region`. Explaining a campaign for one device needs `crm` too.
The other areas (device, nfc, qrcode, tag, fidelity, form) are stored and returned, but no operation
needs them.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from fastapi import Depends
from starlette.requests import Request

from api.body import raise_faults, read_object
from api.errors import forbidden, no_session
from api.services import Services
from api.sessions.check import SignedIn
from catalog.audit import Author, set_author
from catalog.fields.base import Conflicts, Faults, Fields, read_fields
from catalog.fields.company import NOTHING, READ, WRITE

AREAS = {
    "profile": "profile",
    "application": "profile",
    "device": "crm",
    "venue": "region",
    "geofence": "region",
    "beacon": "beacon",
    "campaign": "campaign",
    "connector": "connector",
    "statistics": "analytic",
    "live decision": "realtime",
    "role state": "realtime",
    "audit": "profile",
}
KEY_HEADER = "x-service-key"
TOKEN_HEADER = "x-service-token"  # noqa: S105  # a header's name


@dataclass(frozen=True, kw_only=True)
class AuthorizedCaller:
    """A signed-in account that may make this request."""

    account: SignedIn
    services: Services
    request: Request
    token: str

    @property
    def address(self) -> str:
        """The address of the request."""
        return address_of(self.request)

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

    async def values(
        self, model: type[Fields], conflicts: Conflicts = lambda _: ()
    ) -> dict[str, Any]:
        """The body's values by attribute. Raises ApiError, 400 with every fault.

        `conflicts` finds faults in the combination of fields. Names that `model` does not know are
        ignored, because clients send back the records that they have read.
        """
        faults = Faults()
        values = read_fields(model, await self.body(), faults=faults)
        faults.note_conflicts("", conflicts(values))
        raise_faults(faults)
        return values


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
        email = request.headers.get(KEY_HEADER)
        token = request.headers.get(TOKEN_HEADER)
        if not email or not token:
            raise no_session(**_lacking(email, token))
        account = await services.sessions.find(email, token)
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


def _lacking(email: str | None, token: str | None) -> dict[str, str]:
    """The missing headers by name, with what each requires."""
    given = {
        KEY_HEADER: (email, "required: the account's e-mail"),
        TOKEN_HEADER: (token, "required: the token that POST /auth answered"),
    }
    return {name: message for name, (value, message) in given.items() if not value}
