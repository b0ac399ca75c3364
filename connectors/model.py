"""A call as this package understands it, and what can come of it."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

Format = Literal["template", "url", "html"]
Parameters = tuple[tuple[str, str], ...]


class HttpMethod(StrEnum):
    """How the customer's service wants to be asked."""

    GET = "GET"
    POST = "POST"


class ParameterPlace(StrEnum):
    """Where the parameters go; the names are those of the interface's field `auth`."""

    HEADER = "header"
    QUERY = "get"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where and how to call. `parameters` and `secret` are plain text: never log them."""

    url: str
    method: HttpMethod
    place: ParameterPlace
    parameters: Parameters = field(default=(), repr=False)
    secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class NamedReference:
    """A campaign or a venue."""

    id: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBeacon:
    """The beacon that was heard."""

    id: int
    name: str
    uuid: str
    major: int
    minor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDevice:
    """The phone. `test` is None where the catalog could not be asked."""

    udid: str
    id_connector: int | None = None
    name: str | None = None
    version: str | None = None
    model: str | None = None
    test: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One question to a customer's service. `id` is that of the notification it may lead to.

    `detected_at` is written as it goes out. `fresh_until` (epoch s) ends the tries.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The service's content. None for title and push: the campaign's own."""

    format: Format
    content: str
    title: str | None = None
    push: str | None = None

    @property
    def size(self) -> int:
        """Its characters."""
        return len(self.content) + len(self.title or "") + len(self.push or "")


@dataclass(frozen=True, slots=True)
class Declined:
    """The service wants no notification."""


class CallFault(StrEnum):
    """Why a call came to nothing: the closed list behind dead letters and the metric's label."""

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
    """No content. `detail` is for a person and holds nothing of url, request or reply."""

    fault: CallFault
    detail: str


CallResult = Content | Declined | Failed
