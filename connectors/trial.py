"""A call that is made to see what comes of it, as it is shown to a person."""

from typing import NamedTuple

from connectors.model import Content, Declined

Pairs = tuple[tuple[str, str], ...]


class NothingToTryError(Exception):
    """There is nothing to call; the message says why."""


class ShownRequest(NamedTuple):
    """What was sent, secrets masked. `left_out` are parameters that the request says itself."""

    method: str
    url: str
    headers: Pairs
    body: str
    left_out: tuple[str, ...]


class ShownReply(NamedTuple):
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
    request: ShownRequest | None = None
    reply: ShownReply | None = None
    seconds: float | None = None
    result: Content | Declined | None = None
