"""What became of a company's last calls, and how its breaker stands."""

from typing import Literal, NamedTuple

import msgspec

State = Literal["closed", "open", "half_open"]


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


class ShownBreaker(NamedTuple):
    """Of the last `calls` so many were `failures`; open, it lets a call try after `wait` s."""

    state: State
    calls: int
    failures: int
    wait: float


class CallHistory(NamedTuple):
    """The newest call first."""

    breaker: ShownBreaker
    calls: list[PastCall]
