"""The memory that results may take while they wait to leave, over all partitions of a process."""

from collections.abc import Callable

_MOST_BYTES = 64 * 1024 * 1024


class ResultMemory:
    """Counts bytes of content. `on_room` is called when some has become free."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self.on_room: Callable[[], None] = lambda: None

    @property
    def has_room(self) -> bool:
        """Whether more content may come: not while Kafka is away and much waits for it."""
        return self._bytes < self._most_bytes

    def take(self, size: int) -> None:
        """Content of `size` bytes waits from now on."""
        self._bytes += size

    def give(self, size: int) -> None:
        """It has left, or was given up."""
        self._bytes -= size
        self.on_room()
