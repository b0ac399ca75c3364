"""A call to a customer's service, its possible results, and what account holders see of calls."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple

import msgspec

from connectors.errors import ConnectorError

BreakerStatus = Literal["closed", "open", "half_open"]
Format = Literal["template", "url", "html"]
Pairs = tuple[tuple[str, str], ...]
PLACES = ("beacon", "geofence", "nfc", "qrcode")  # the fields of which a call has one


class HttpMethod(StrEnum):
    """The HTTP method that the customer's service expects."""

    GET = "GET"
    POST = "POST"


class ParameterPlace(StrEnum):
    """Where a connector's parameters go; the values are those of the interface's field `auth`."""

    HEADER = "header"
    QUERY = "get"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where and how to call. `parameters` and `secret` are decrypted: never log them."""

    url: str
    method: HttpMethod
    place: ParameterPlace
    parameters: Pairs = field(default=(), repr=False)
    secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The content from the service. A title or push of None stands for the campaign's own."""

    format: Format
    content: str
    title: str | None = None
    push: str | None = None


@dataclass(frozen=True, slots=True)
class Declined:
    """The service declined: there will be no notification."""


class CallFault(StrEnum):
    """Why a call failed: reason of its dead letter, and label of the metric."""

    NO_CONNECTOR = "no_connector"
    SECRET = "connector_secret"  # noqa: S105
    STALE = "connector_stale"
    BREAKER = "connector_breaker"
    OVERLOAD = "connector_overload"
    FORBIDDEN = "connector_forbidden"
    UNREACHABLE = "connector_unreachable"
    TLS = "connector_tls"
    TIMEOUT = "connector_timeout"
    STATUS = "connector_status"
    REPLY = "connector_reply"
    REPLY_TOO_LARGE = "connector_reply_too_large"
    REQUEST = "connector_request"
    TOO_LARGE = "too_large"


class Failed(ConnectorError):  # noqa: N818  # a result, too
    """A try failed, or the call. `detail` is for people and never quotes url, request or reply.

    `retriable`: another try may succeed. `counts`: the breaker counts the failure. `retry_after`
    (seconds) is what the service requested.
    """

    def __init__(
        self,
        fault: CallFault,
        detail: str,
        *,
        retriable: bool = False,
        counts: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.fault = fault
        self.detail = detail
        self.retriable = retriable
        self.counts = counts
        self.retry_after = retry_after


CallResult = Content | Declined | Failed


@dataclass(slots=True, kw_only=True, eq=False)
class Call:
    """One call of a customer's service, and how it goes. `id` is also that of its notification.

    `document` is the JSON that the service receives: id, campaign, venue, one of PLACES, proximity
    (of a beacon), device, detected_at. No try begins after `fresh_until` (epoch s). Requests carry
    `traceparent` (W3C). It takes the room of `weight` calls while it waits. `seconds` and `status`
    are those of the last try.
    """

    id: str
    company_id: int
    document: Mapping[str, Any]
    fresh_until: float
    endpoint: Endpoint
    traceparent: str | None = None
    weight: int = 1

    tried: int = field(default=0, init=False)
    seconds: float | None = field(default=None, init=False)
    status: int | None = field(default=None, init=False)
    # The scheduler's: the try in flight, the timer of the next one, and the last failure.
    on_result: Callable[[CallResult], None] = field(init=False, repr=False)
    task: asyncio.Task[bool | None] | None = field(default=None, init=False, repr=False)
    retry: asyncio.TimerHandle | None = field(default=None, init=False, repr=False)
    failure: Failed | None = field(default=None, init=False, repr=False)
    ended: bool = field(default=False, init=False)


class PastCall(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A completed call. `at` is epoch seconds; `id` is also the id of its notification.

    `outcome` is published, declined, or a fault's value, which `detail` explains; neither quotes
    anything of device, url, request or reply. `status` and `seconds` are those of the last try.
    """

    at: float
    id: str
    campaign: int
    outcome: str
    detail: str
    status: int | None
    seconds: float | None
    tries: int


class BreakerSummary(NamedTuple):
    """`failures` among the last `calls`. An open breaker allows one call after `wait` seconds."""

    state: BreakerStatus
    calls: int
    failures: int
    wait: float


class CallHistory(NamedTuple):
    """The newest call first."""

    breaker: BreakerSummary
    calls: list[PastCall]


class RequestReport(NamedTuple):
    """The request that was sent, secrets masked."""

    method: str
    url: str
    headers: Pairs
    body: str


class ReplyReport(NamedTuple):
    """The service's reply. Secrets that the service repeats are masked."""

    status: int
    headers: Pairs
    body: str


class Trial(NamedTuple):
    """A trial call and the result that a real call would have had.

    `outcome` is published, declined, or a fault's value, which `detail` explains. `reply` is None
    if none came, `seconds` if no call could be made.
    """

    outcome: str
    detail: str
    request: RequestReport | None = None
    reply: ReplyReport | None = None
    seconds: float | None = None
    result: Content | Declined | None = None
