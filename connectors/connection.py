"""One connection of HTTP/1.1 whose replies are parsed within a budget."""

import h11
import httpcore

from connectors.budget import ReplyBudget
from connectors.streams import PIECE_BYTES, BoundedStream


class BoundedConnection(httpcore.AsyncHTTP11Connection):
    """httpcore's connection over a stream that is connected already. Call `allow` before a request.

    httpcore keeps interim replies to itself and parses for as long as it has data; so the one
    method in which it asks its parser is replaced.
    """

    MAX_INCOMPLETE_EVENT_SIZE = 64 * 1024

    def __init__(self, *, origin: httpcore.Origin, stream: BoundedStream, keep: float) -> None:
        super().__init__(origin=origin, stream=stream, keepalive_expiry=keep)
        self._stream = stream
        self._budget: ReplyBudget | None = None

    def allow(self, budget: ReplyBudget) -> None:
        """What the reply to the next request may take."""
        self._budget = budget
        self._stream.budget = budget

    def is_idle(self) -> bool:
        """Whether it can serve again: not with something left over, which would answer the next."""
        return super().is_idle() and not self._h11_state.trailing_data[0]

    async def _receive_event(
        self,
        timeout: float | None = None,  # noqa: ARG002, ASYNC109  # httpcore's signature
    ) -> h11.Event | type[h11.PAUSED]:
        budget = self._budget
        assert budget is not None  # noqa: S101  # no request without one
        while (event := self._next_event()) is h11.NEED_DATA:
            is_head = self._h11_state.their_state is h11.SEND_RESPONSE
            data = await self._stream.read(PIECE_BYTES)
            if is_head and not data:
                raise httpcore.RemoteProtocolError("hung up without a reply")
            await budget.take_read(data, is_head=is_head)
            self._h11_state.receive_data(data)
        await budget.take_event()
        return event  # type: ignore[return-value]  # mypy does not narrow such sentinels

    def _next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        try:
            return self._h11_state.next_event()
        except Exception as error:
            # (What h11 raises besides RemoteProtocolError is its own fault, but of this reply.)
            raise httpcore.RemoteProtocolError(type(error).__name__) from error
