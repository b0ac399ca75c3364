"""Which detections leave a trace row when not all do: those that say something new. Pure."""

from collections.abc import Iterable
from datetime import timedelta

from engine.recorder.rows import DetectionRow, PresenceKey, PresenceState

MINUTE = timedelta(minutes=1)


def rows_with_news(
    rows: Iterable[DetectionRow], states: dict[PresenceKey, PresenceState]
) -> list[DetectionRow]:
    """Those of `rows`, in their order, at which the zone of a device at a beacon has changed or
    whose last row lies a minute or more before. `states` is brought up to date."""
    kept = []
    for row in rows:
        key = PresenceKey(row.device_id, row.beacon_id)
        last = states.get(key)
        if last is None or row.status != last.status or row.create_on - last.create_on >= MINUTE:
            states[key] = PresenceState(row.status, row.create_on)
            kept.append(row)
    return kept
