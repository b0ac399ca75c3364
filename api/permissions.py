"""What an operation works with: the services, and the account that calls, if it may.

Level 1 of an area permits reading and explaining, level 2 also creating, changing, deleting and
testing. Signing out and changing one's own password need a session and no level. Deleting a venue
also deletes its records, and needs only `region`. Explaining a campaign for one device needs `crm`
too. The audit shows the kinds of record that the account may read. The other areas
(device, tag, fidelity, form) are stored and returned, but no operation needs them.
"""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Annotated, Any

from fastapi import Depends
from starlette.requests import Request

from api.answers import ApiError, forbidden
from api.bodies import accepted, read_json
from api.reports import HeldData, LiveDecisions, RoleReport
from api.sessions import Sessions, SignedIn
from catalog.database import Database
from catalog.fields import Fields
from catalog.inputs import NOTHING, READ, WRITE
from catalog.limits import CatalogLimits
from catalog.secrets import Cipher
from catalog.session import Author, set_author
from connectors.model import CallHistory, Trial
from rules.explanation import DeviceHistory
from rules.model import DayFigures, StoredDecision

# The permission area of each kind of record.
AREA_OF = {
    "profile": "profile",
    "account": "profile",
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
    "audit": "profile",
}
PREFIX = "/v2"
KEY_HEADER = "x-service-key"
TOKEN_HEADER = "x-service-token"  # noqa: S105  # a header's name


@dataclass(frozen=True, kw_only=True)
class Services:
    """The objects that the operations use, open while the application serves.

    Functions take a company's id first. Those that read Redis raise its errors. `check_url`
    raises EgressError for a url that no connector may call, `try_connector` NothingToTryError.
    Without `cipher` connectors can be neither stored nor shown. `max_detection_age` is in seconds,
    `max_body` in bytes.
    """

    database: Database
    sessions: Sessions
    cipher: Cipher | None
    check_url: Callable[[str], Awaitable[None]]
    try_connector: Callable[[int], Awaitable[Trial]]
    past_calls: Callable[[int], Awaitable[CallHistory]]
    device_history: Callable[[int, str, Collection[int]], Awaitable[DeviceHistory]]
    recent_decisions: Callable[[int, str], Awaitable[list[StoredDecision]]]
    live_decisions: Callable[[int, str | None], Awaitable[LiveDecisions]]
    role_reports: Callable[[], Awaitable[list[RoleReport]]]
    recent_detections: Callable[[int], Awaitable[dict[int, int]]]
    held_data: Callable[[int, str], Awaitable[HeldData]]
    forget_device: Callable[[int, str], Awaitable[HeldData]]
    day_figures: Callable[[int, date, date], Awaitable[dict[date, DayFigures]]]
    max_detection_age: float
    clock: Callable[[], datetime]
    max_body: int
    catalog_limits: CatalogLimits
    trials: set[int] = field(default_factory=set)  # companies whose connector is being tested


@dataclass(frozen=True, kw_only=True)
class Caller:
    """A signed-in account that may make this request."""

    account: SignedIn
    services: Services
    request: Request
    token: str

    @property
    def company_id(self) -> int:
        """The company whose records the caller sees."""
        return self.account.company_id

    async def body(self) -> Any:
        """The JSON in the request's body. Raises ApiError."""
        return await read_json(self.request, self.services.max_body)

    async def values(self, model: type[Fields]) -> dict[str, Any]:
        """The body's values by attribute, as `api.bodies.accepted`. Raises ApiError."""
        return accepted(model, await self.body())


def services_of(request: Request) -> Services:
    """The services of the application."""
    services: Services = request.app.state.services
    return services


def address_of(request: Request) -> str:
    """The address of the client. Behind a trusted proxy, the address that the proxy reports."""
    return request.client.host if request.client else ""


def may_read(record: str) -> Any:
    """A dependency: the caller, if the account may read records of this kind."""
    return _caller(AREA_OF[record], READ)


def may_write(record: str) -> Any:
    """A dependency: the caller, if the account may change records of this kind."""
    return _caller(AREA_OF[record], WRITE)


def _caller(area: str, level: int) -> Any:
    async def find(request: Request) -> Caller:
        services = services_of(request)
        key, token = (request.headers.get(name, "") for name in (KEY_HEADER, TOKEN_HEADER))
        account = await services.sessions.find(token) if key and token else None
        keys = (key, key.encode("latin-1").decode(errors="replace"))  # clients send either encoding
        if account is None or account.email not in [each.strip().lower() for each in keys]:
            raise ApiError(401, "no session")
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
        return Caller(account=account, services=services, request=request, token=token)

    return Depends(find)


# The caller, whatever its levels, for operations on the account itself.
SignedInCaller = Annotated[Caller, _caller("", NOTHING)]
