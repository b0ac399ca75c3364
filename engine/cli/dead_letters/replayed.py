"""How far a partition's dead letters are put back, by reason, as it is kept with an offset."""

from dataclasses import dataclass, field

import msgspec

_decode = msgspec.json.Decoder(dict[str, int]).decode


@dataclass
class Settled:
    """Offsets below `everything` are settled; those of a reason below `by_reason`, too.

    So a replay of one reason does not settle the letters of others that it passed by.
    """

    everything: int = 0
    by_reason: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, offset: int, metadata: str | None) -> "Settled":
        """From a committed offset (negative: none) and its metadata, which may be another's."""
        try:
            by_reason = _decode(metadata or "{}")
        except msgspec.DecodeError:
            by_reason = {}
        return cls(max(0, offset), by_reason)

    @property
    def metadata(self) -> str:
        """What to commit beside `everything`."""
        return msgspec.json.encode(self.by_reason).decode() if self.by_reason else ""

    def start(self, reason: str | None) -> int:
        """The first offset that may be open, for one reason or for all."""
        return max(self.everything, self.by_reason.get(reason or "", 0))

    def includes(self, offset: int, reason: str) -> bool:
        """Whether the letter at `offset` is settled."""
        return offset < max(self.everything, self.by_reason.get(reason, 0))

    def advance(self, reason: str | None, until: int) -> None:
        """Everything of `reason` (None: everything) below `until` is settled now."""
        if reason is not None:
            self.by_reason[reason] = max(until, self.by_reason.get(reason, 0))
        else:
            self.everything = max(until, self.everything)
        self.by_reason = {r: o for r, o in self.by_reason.items() if o > self.everything}
