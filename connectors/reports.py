"""What account holders are shown of calls: past ones, the breaker, and trial calls."""

from typing import Literal, NamedTuple

import msgspec

from connectors.model import Content, Declined

Pairs = tuple[tuple[str, str], ...]
BreakerStatus = Literal["closed", "open", "half_open"]


class PastCall(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A call that is over. `at` is epoch seconds; `id` that of the notification it was made for.

    `outcome` is published, declined, or a fault's word, of which `detail` says more; neither
    holds anything of the device, the url, the request or the reply. `status` and `seconds` are
    the last try's, where there was one.
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
    """Of the last `calls` so many were `failures`; open, it lets a call try after `wait` s."""

    state: BreakerStatus
    calls: int
    failures: int
    wait: float


class CallHistory(NamedTuple):
    """The newest call first."""

    breaker: BreakerSummary
    calls: list[PastCall]


class RequestReport(NamedTuple):
    """What was sent, secrets masked. `left_out` are parameters that the request says itself."""

    method: str
    url: str
    headers: Pairs
    body: str
    left_out: tuple[str, ...]


class ReplyReport(NamedTuple):
    """What came back, the secrets that it repeats masked."""

    status: int
    headers: Pairs
    body: str


class Trial(NamedTuple):
    """A call and what it would have led to.

    `outcome` is published, declined, or a fault's word; `detail` says more of a fault. `reply` is
    None where none came, `seconds` where none was asked for.
    """

    outcome: str
    detail: str
    request: RequestReport | None = None
    reply: ReplyReport | None = None
    seconds: float | None = None
    result: Content | Declined | None = None
