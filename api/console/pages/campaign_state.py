"""Describes the present state of a campaign, by the explain operation."""

from typing import Any, NamedTuple

from api.console.context import PageContext
from api.console.interface import InterfaceReply
from api.console.times import parse_time
from api.console.translations import Translations

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WAITS = ("not_started", "wrong_weekday", "outside_hours")


class CampaignState(NamedTuple):
    """`kind` is the style of the text: good, waiting or off."""

    kind: str
    text: str

    @property
    def sends(self) -> bool:
        """Whether the campaign sends now."""
        return self.kind == "good"


async def campaign_state(context: PageContext, venue_id: int, number: int) -> CampaignState:
    """The present state, for a device without claims in the zone that the beacon requires."""
    reply = await context.interface.call("POST", f"/lieu/{venue_id}/campaign/{number}/explain", {})
    return described_state(reply, context.texts)


def described_state(reply: InterfaceReply, texts: Translations) -> CampaignState:
    """The state that an explanation describes."""
    if not reply.is_success:
        return CampaignState("off", reply.message)
    explanation: dict[str, Any] = reply.body
    reason = explanation["reason"]
    if reason == "granted":
        return CampaignState("good", texts("state_sends"))
    if reason in _WAITS and explanation["next_at"]:
        return CampaignState("waiting", _opens(explanation["at"], explanation["next_at"], texts))
    return CampaignState("off", texts.get(f"state_{reason}"))


def _opens(now: str, written: str, texts: Translations) -> str:
    """Opens today at 17:00; opens Friday at 09:00; opens on 2026-12-24 at 09:00."""
    at, today = parse_time(written), parse_time(now).date()
    days = (at.date() - today).days
    clock = f"{at:%H:%M}"
    if days == 0:
        return texts("opens_today", clock=clock)
    if days < 7:
        return texts("opens_weekday", day=texts(_WEEKDAYS[at.weekday()]), clock=clock)
    return texts("opens_date", day=str(at.date()), clock=clock)
