"""Converts times between the form of the interface, which has an offset, and that of the pages."""

from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

from catalog.fields.texts import ZONES

_FORM = "%Y-%m-%dT%H:%M:%S%z"


def parse_time(written: str) -> datetime:
    """Parse a time of the interface, such as 2026-11-20T10:00:00+0100."""
    return datetime.strptime(written, _FORM)  # noqa: DTZ007  # with %z


def display_time(written: str | None) -> str:
    """Date and time, as 2026-11-20 10:00:00; `display_zone` has the offset."""
    return "" if not written else f"{parse_time(written):%Y-%m-%d %H:%M:%S}"


def display_clock(written: str) -> str:
    """The time of day, as 10:00:00."""
    return f"{parse_time(written):%H:%M:%S}"


def display_zone(written: str) -> str:
    """The offset, as UTC or UTC+01:00."""
    offset = parse_time(written).utcoffset() or timedelta()
    if not offset:
        return "UTC"
    sign, minutes = "-" if offset < timedelta() else "+", abs(offset) // timedelta(minutes=1)
    return f"UTC{sign}{minutes // 60:02}:{minutes % 60:02}"


def start_of_day(day: str, zone: str) -> str:
    """Midnight at the start of a day (2026-11-20) in a time zone, in the form of the interface."""
    return local_time(f"{day}T00:00", zone) if _is_day(day) else day


def local_time(text: str, zone: str) -> str:
    """A local time (2026-11-20T10:00) of a time zone, in the form of the interface.

    An invalid text is returned unchanged, because the interface refuses it with a message.
    """
    try:
        return format_time(datetime.fromisoformat(text).replace(tzinfo=_zone_named(zone)))
    except (ValueError, OverflowError):
        return text


def in_zone(now: datetime, zone: str) -> datetime:
    """The time with the present offset of a time zone."""
    offset = now.astimezone(_zone_named(zone)).utcoffset() or timedelta()
    return now.astimezone(timezone(offset))


def format_time(moment: datetime) -> str:
    """The time in the form of the interface."""
    return moment.strftime(_FORM)


def _zone_named(name: str) -> ZoneInfo:
    """A time zone by its name; UTC for an unknown name."""
    return ZoneInfo(name if name in ZONES else "UTC")


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True
