"""A notification on one line, and the selection of notifications."""

from datetime import datetime
from typing import NamedTuple

import msgspec

from catalog.plain_text import for_terminal
from engine.kafka.messages import Notification
from engine.kafka.timestamps import parse

_decode = msgspec.json.Decoder(Notification).decode


class Selection(NamedTuple):
    """All notifications, or those of a device, of a campaign, or of both.

    A campaign is given by its id or by its name, in any case.
    """

    udid: str | None = None
    campaign: str | None = None

    def takes(self, notification: Notification) -> bool:
        """Whether the notification is selected."""
        campaign = notification.campaign
        names = (str(campaign.id), campaign.name.casefold())
        is_campaign = self.campaign is None or self.campaign.casefold() in names
        return is_campaign and self.udid in (None, notification.device.udid)


def read_notification(value: bytes | None) -> Notification | None:
    """The notification in a record's value; None if it is none."""
    try:
        return _decode(value or b"")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def compact(value: bytes) -> str:
    """The same JSON on one line, every field as it was published, harmless to a terminal."""
    return for_terminal(msgspec.json.format(value, indent=-1).decode())


def one_line(notification: Notification, *, width: int | None = None) -> str:
    """The time, the campaign, the device and the text on the phone; cut to `width` columns."""
    at = _time_of_day(notification.triggered_at)
    line = (
        f"{at}  {notification.campaign.name} -> {notification.device.udid}: "
        f"{notification.title}. {notification.push} [{notification.format}]"
    )
    shown = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in line)
    if width is None or len(shown) <= width:
        return shown
    return f"{shown[: width - 1]}\N{HORIZONTAL ELLIPSIS}"


def _time_of_day(written: str) -> str:
    """The time in this host's time zone; dashes for a text that is no valid time."""
    try:
        return f"{datetime.fromtimestamp(parse(written)).astimezone():%H:%M:%S}"
    except (ValueError, OverflowError):
        return "--:--:--"
