"""Times as the interface writes them, and as people read them: always with their offset."""

from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

from catalog.fields.texts import ZONES

_WRITTEN = "%Y-%m-%dT%H:%M:%S%z"


def read_moment(written: str) -> datetime:
    """2026-11-20T10:00:00+0100."""
    return datetime.strptime(written, _WRITTEN)  # noqa: DTZ007  # with %z


def shown_moment(written: str | None) -> str:
    """2026-11-20 10:00:00; the offset is said beside it, by `shown_zone`."""
    return "" if not written else f"{read_moment(written):%Y-%m-%d %H:%M:%S}"


def shown_clock(written: str) -> str:
    """10:00:00."""
    return f"{read_moment(written):%H:%M:%S}"


def shown_zone(written: str) -> str:
    """UTC, or UTC+01:00."""
    offset = read_moment(written).utcoffset() or timedelta()
    if not offset:
        return "UTC"
    sign, minutes = "-" if offset < timedelta() else "+", abs(offset) // timedelta(minutes=1)
    return f"UTC{sign}{minutes // 60:02}:{minutes % 60:02}"


def begin_of_day(day: str, zone: str) -> str:
    """The first moment of a day, 2026-11-20, by the clocks of a zone, as the interface reads it."""
    return at_wall(f"{day}T00:00", zone) if _is_day(day) else day


def at_wall(wall: str, zone: str) -> str:
    """A date and time of a form, 2026-11-20T10:00, by the clocks of a zone.

    What is none is left as it is: the interface says what it accepts.
    """
    try:
        return written_moment(datetime.fromisoformat(wall).replace(tzinfo=_zone_named(zone)))
    except (ValueError, OverflowError):
        return wall


def in_zone(now: datetime, zone: str) -> datetime:
    """By the clocks of a zone, with the offset that it has now."""
    offset = now.astimezone(_zone_named(zone)).utcoffset() or timedelta()
    return now.astimezone(timezone(offset))


def written_moment(moment: datetime) -> str:
    """As the interface writes it."""
    return moment.strftime(_WRITTEN)


def _zone_named(name: str) -> ZoneInfo:
    """A time zone by its name; UTC for what is none."""
    return ZoneInfo(name if name in ZONES else "UTC")


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True
