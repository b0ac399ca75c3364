"""What account holders see of calls: past calls, the state of the breaker, trial calls."""

from typing import Literal, NamedTuple

import msgspec

from connectors.model import Content, Declined

Pairs = tuple[tuple[str, str], ...]
BreakerStatus = Literal["closed", "open", "half_open"]


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
    """The request that was sent, secrets masked. `left_out` are parameters with reserved names."""

    method: str
    url: str
    headers: Pairs
    body: str
    left_out: tuple[str, ...]


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
