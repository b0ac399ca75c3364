"""A call to a customer's service, and its possible results."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

Format = Literal["template", "url", "html"]
Parameters = tuple[tuple[str, str], ...]


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
    parameters: Parameters = field(default=(), repr=False)
    secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class NamedReference:
    """A campaign or a venue, by id and name."""

    id: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBeacon:
    """The beacon that the device detected."""

    id: int
    name: str
    uuid: str
    major: int
    minor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDevice:
    """The detected device. `test` is None while the catalog cannot be read."""

    udid: str
    id_connector: int | None = None
    name: str | None = None
    version: str | None = None
    model: str | None = None
    test: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a customer's service. `id` is also the id of the notification it may lead to.

    `detected_at` is text in the format of the request. No try begins after `fresh_until` (epoch s).
    `traceparent` is the header of that name (W3C), if the detection is part of a trace.
    """

    id: str
    company_id: int
    campaign: NamedReference
    venue: NamedReference
    beacon: CallBeacon
    proximity: str
    device: CallDevice
    detected_at: str
    fresh_until: float
    endpoint: Endpoint
    traceparent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The service's content. Title and push are None where the campaign's own are used."""

    format: Format
    content: str
    title: str | None = None
    push: str | None = None

    @property
    def size(self) -> int:
        """In characters."""
        return len(self.content) + len(self.title or "") + len(self.push or "")


@dataclass(frozen=True, slots=True)
class Declined:
    """The service declined: there will be no notification."""


class CallFault(StrEnum):
    """Why a call failed: the closed list of dead letter reasons and of the metric's labels."""

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


@dataclass(frozen=True, slots=True)
class Failed:
    """The call failed. `detail` is for a person and quotes nothing of url, request or reply."""

    fault: CallFault
    detail: str


CallResult = Content | Declined | Failed
