"""The results of a replay, for every output."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple

from engine.cli.replay.catalogs import ReplayedCampaign, ReplayedCatalog, VenueNames
from engine.cli.replay.comparison import CatalogComparison, SentHour
from engine.cli.replay.decisions import CatalogReplay
from engine.cli.replay.tally import LocalHour, TallyKey
from rules.model import Reason

_NOWHERE = VenueNames("", "")


class HourRow(NamedTuple):
    """The detections of an hour with one reason, for a campaign, or at a beacon without one.

    `only_here` counts the granted detections that the other catalog does not send; None if there is
    no other catalog.
    """

    place: VenueNames
    campaign: ReplayedCampaign | None
    hour: LocalHour
    reason: Reason
    detections: int
    only_here: int | None

    @property
    def written_hour(self) -> str:
        """The beginning of the hour, in the interface's format."""
        return f"{_local(self.hour):%Y-%m-%dT%H:%M:%S%z}"


class CampaignRow(NamedTuple):
    """A campaign: its notifications, their number of devices, and its decisions by reason."""

    campaign: ReplayedCampaign
    sent: int
    devices: int
    reasons: Mapping[Reason, int]
    only_here: int | None
    devices_only_here: int | None


class Outcome(NamedTuple):
    """The results for one catalog: `detections` by the furthest check that any campaign reached."""

    name: str
    detections: Mapping[Reason, int]
    sent: int
    devices: int
    campaigns: Sequence[CampaignRow]
    rows: Sequence[HourRow]


class ReplayFindings(NamedTuple):
    """The results of the whole replay.

    `records` were read, of which `undecodable` are not detections; `decided` were in the period.
    `begins_cold`: the claims from before the period are unknown.
    """

    source: str
    records: int
    undecodable: int
    first_fault: str
    decided: int
    seconds: float
    begins_cold: bool
    outcomes: Sequence[Outcome]


def _local(hour: LocalHour) -> datetime:
    zone = timezone(timedelta(seconds=hour.offset))
    return datetime.fromtimestamp(hour.wall - hour.offset, UTC).astimezone(zone)


def outcome_of(
    replay: CatalogReplay, comparison: CatalogComparison | None = None, number: int = 0
) -> Outcome:
    """The outcome of a replay: of the first catalog (0) or, in a comparison, of the second (1)."""
    replay.tally.fold()
    only = None if comparison is None else comparison.only[number]
    devices_only = None if comparison is None else comparison.devices_only(number)
    return Outcome(
        replay.catalog.name,
        dict(replay.tally.detections.most_common()),
        replay.sent,
        len(set().union(*replay.reached.values())),
        sorted(_campaign_rows(replay, only, devices_only), key=_importance),
        sorted(_hour_rows(replay, only), key=_order),
    )


def _importance(row: CampaignRow) -> tuple[int, ReplayedCampaign]:
    return -row.sent, row.campaign._replace(id=row.campaign.id or 0)


def _order(row: HourRow) -> tuple[VenueNames, str, int, LocalHour, str]:
    campaign = row.campaign
    names = ("", 0) if campaign is None else (campaign.name, campaign.id or 0)
    return row.place, *names, row.hour, row.reason


def _campaign_rows(
    replay: CatalogReplay, only: Counter[SentHour] | None, devices_only: dict[int, int] | None
) -> Iterator[CampaignRow]:
    """Every campaign of the catalog, even without any detection."""
    reasons: defaultdict[int, Counter[Reason]] = defaultdict(Counter)
    for key, count in replay.tally.counts.items():
        if key.campaign_id is not None:
            reasons[key.campaign_id][key.reason] += count
    sent_only: Counter[int] = Counter()
    for sent, count in (only or {}).items():
        sent_only[sent.campaign_id] += count
    for id_, campaign in replay.catalog.campaigns.items():
        yield CampaignRow(
            campaign,
            reasons[id_][Reason.GRANTED],
            len(replay.reached.get(id_, ())),
            dict(reasons[id_].most_common()),
            None if only is None else sent_only[id_],
            None if devices_only is None else devices_only.get(id_, 0),
        )


def _hour_rows(replay: CatalogReplay, only: Counter[SentHour] | None) -> Iterator[HourRow]:
    for key, count in replay.tally.counts.items():
        id_, _, hour, reason = key
        campaign = None if id_ is None else replay.catalog.campaigns[id_]
        place = campaign.place if campaign is not None else _place(replay.catalog, key)
        here = None
        if only is not None and id_ is not None and reason is Reason.GRANTED:
            here = only[SentHour(id_, hour)]
        yield HourRow(place, campaign, hour, reason, count, here)


def _place(catalog: ReplayedCatalog, key: TallyKey) -> VenueNames:
    return _NOWHERE if key.venue_id is None else catalog.places[key.venue_id]
