"""What a campaign does now, in words, as the explain operation sees it."""

from typing import Any, NamedTuple

from api.console.interface import InterfaceReply
from api.console.moments import read_moment
from api.console.visit import Visit
from api.console.words import PageWords

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WAITS = ("not_started", "wrong_weekday", "outside_hours")


class CampaignState(NamedTuple):
    """`kind` is what it is shown as: good, waiting or off."""

    kind: str
    text: str

    @property
    def sends(self) -> bool:
        """Whether it sends at this moment."""
        return self.kind == "good"


async def state_of(visit: Visit, venue_id: int, number: int) -> CampaignState:
    """The state now, for a device that is new and as near as it has to be."""
    reply = await visit.interface.call("POST", f"/lieu/{venue_id}/campaign/{number}/explain", {})
    return in_words(reply, visit.words)


def in_words(reply: InterfaceReply, words: PageWords) -> CampaignState:
    """The state that an explanation tells of."""
    if not reply.is_good:
        return CampaignState("off", reply.message)
    told: dict[str, Any] = reply.body
    reason = told["reason"]
    if reason == "granted":
        return CampaignState("good", words("state_sends"))
    if reason in _WAITS and told["next_at"]:
        return CampaignState("waiting", _opens(told["at"], told["next_at"], words))
    return CampaignState("off", words.get(f"state_{reason}"))


def _opens(now: str, written: str, words: PageWords) -> str:
    """Opens today at 17:00; opens Friday at 09:00; opens on 2026-12-24 at 09:00."""
    at, today = read_moment(written), read_moment(now).date()
    days = (at.date() - today).days
    clock = f"{at:%H:%M}"
    if days == 0:
        return words("opens_today", clock=clock)
    if days < 7:
        return words("opens_weekday", day=words(_WEEKDAYS[at.weekday()]), clock=clock)
    return words("opens_date", day=str(at.date()), clock=clock)
