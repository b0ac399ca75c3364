"""One JSON array of detections, as people export them; told from JSON Lines by its beginning."""

from collections.abc import Sequence

import msgspec

from engine.cli.publish.item import Item, LineReader, PlacedError
from engine.cli.publish.json_lines import JsonLines, json_item

_LARGEST = 64 * 1024 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_decode = msgspec.json.Decoder(list[msgspec.Raw]).decode


class JsonArray:
    """Keeps every line until the end, at most 64 MiB, and reads them together then."""

    def __init__(self, *, recorded: bool = False) -> None:
        self._recorded = recorded
        self._lines: list[bytes] = []
        self._bytes = 0

    def read(self, line: bytes) -> Item | None:
        """Nothing yet. Raises ValueError when it becomes too much."""
        self._lines.append(line)
        self._bytes += len(line) + 1
        if self._bytes > _LARGEST:
            raise ValueError(
                f"a JSON array is read whole, up to {_LARGEST // 1024 // 1024} MiB; what is more "
                "goes as JSON Lines (jq -c .[] FILE writes it so)"
            )
        return None

    def finish(self) -> Sequence[Item]:
        """All of them, none if one is at fault. Raises PlacedError, which knows the line."""
        whole = b"\n".join(self._lines)
        try:
            parts = _decode(whole)
        except (msgspec.DecodeError, RecursionError) as error:
            raise PlacedError(1, f"no JSON array of detections: {error}") from None
        items, at = [], 0
        for part in parts:
            value = bytes(part)
            at = whole.index(value, at)
            try:
                items.append(json_item(value, recorded=self._recorded))
            except ValueError as error:
                raise PlacedError(1 + whole.count(b"\n", 0, at), str(error)) from None
            at += len(value)
        return items


class JsonInput:
    """JSON Lines, or one array: the first line that is not blank decides."""

    def __init__(self, *, recorded: bool = False) -> None:
        self._recorded = recorded
        self._before: list[bytes] = []
        self._reader: LineReader | None = None

    def read(self, line: bytes) -> Item | None:
        """As the reader that was chosen. Raises ValueError."""
        if self._reader is not None:
            return self._reader.read(line)
        if not self._before:
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if not line.strip():
            self._before.append(line)
            return None
        self._reader = self._chosen(line)
        return self._reader.read(line)

    def finish(self) -> Sequence[Item]:
        """What the reader kept. Raises ValueError."""
        return [] if self._reader is None else self._reader.finish()

    def _chosen(self, line: bytes) -> LineReader:
        if not line.lstrip().startswith(b"["):
            return JsonLines(recorded=self._recorded)
        array = JsonArray(recorded=self._recorded)
        for blank in self._before:  # for the numbers of the lines
            array.read(blank)
        return array
