"""How many bytes of the stream a process holds."""

from operator import attrgetter

from engine.kafka.worker import Records

_SMALLEST_TURN = 64 * 1024
_LARGEST_TURN = 1024 * 1024
_TURNS = 4

_size = attrgetter("serialized_value_size")


class InFlightBytes:
    """Counts the bytes of records that are fetched and not finished, against a bound.

    Messages are composed a turn at a time, so that all turns together stay within a sixteenth
    of the bound, or a little over the largest message each if that is more.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self.turns = _TURNS
        self.turn_bytes = min(_LARGEST_TURN, max(_SMALLEST_TURN, most // 64))

    def has_room(self) -> bool:
        """Whether more may be fetched."""
        return self._held < self._most

    def hold(self, size: int) -> None:
        """These bytes are in hand now; a negative size gives them back."""
        self._held += size


def size_of(records: Records) -> int:
    """The bytes of the records' values."""
    return sum(map(_size, records))
