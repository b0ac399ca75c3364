"""Encodes the parts of a message that are the same for every device once.

A message is spliced from the parts of its campaign, the part of its beacon, and the fields that
differ. It is byte for byte what msgspec writes for the types in engine/kafka/messages.py; a
property test compares the two.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from catalog.index.entries import ConnectorEntry
from engine.kafka.messages import CampaignReference, ConnectorEndpoint
from engine.kafka.timestamps import format_instant
from engine.trigger.beacon_cache import IndexedBeacon
from rules.model import CampaignSnapshot, Zone

ZONE_NAMES = tuple(zone.name.lower().encode() for zone in Zone)  # by the zone's number

_MOST_BYTES = 16 * 1024 * 1024
_ENDPOINT_FIELDS = ConnectorEndpoint.__struct_fields__
_encode = msgspec.json.Encoder().encode


class CampaignParts(NamedTuple):
    """The encoded parts of a campaign: after the id, after the device, and after the times.

    `campaign` and `connector` are what the parts were made from.
    """

    campaign: CampaignSnapshot
    connector: ConnectorEntry | None
    reference: bytes
    texts: bytes
    content: bytes
    header: tuple[str, bytes]


class CampaignFragments:
    """The parts of the campaigns that fired lately, bounded in bytes."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._known: dict[int, CampaignParts] = {}

    def of(self, campaign: CampaignSnapshot, connector: ConnectorEntry | None) -> CampaignParts:
        """The parts of a campaign. `connector` is the company's, for a campaign that needs it."""
        known = self._known.get(campaign.id)
        if (
            known is not None
            and known.campaign is campaign
            and (known.connector is connector or known.connector == connector)
        ):
            return known
        return self._make(campaign, connector)

    def _make(self, campaign: CampaignSnapshot, connector: ConnectorEntry | None) -> CampaignParts:
        made = _parts(campaign, connector)
        # Counted twice, because the campaign that the parts were made from stays in memory too.
        self._bytes += 2 * (len(made.reference) + len(made.texts) + len(made.content))
        if self._bytes > self._most_bytes:
            self._known.clear()
            self._bytes = 0
        else:
            self._known[campaign.id] = made
        return made


def _parts(campaign: CampaignSnapshot, connector: ConnectorEntry | None) -> CampaignParts:
    reference = _encode(CampaignReference(campaign.id, campaign.name, campaign.hash))
    texts = {name: getattr(campaign, name) for name in ("title", "push", "background", "color")}
    return CampaignParts(
        campaign,
        connector,
        b'"campaign":%b,' % reference,
        _encode(texts)[1:-1],
        _encode(_content(campaign, connector))[1:],
        ("campaign", b"%d" % campaign.id),
    )


def _content(campaign: CampaignSnapshot, connector: ConnectorEntry | None) -> dict[str, Any]:
    """The last fields: of a call, or of a notification."""
    if campaign.format == "connector":
        delay = {"delay": campaign.delay}
        return delay if connector is None else delay | {"connector": _endpoint(connector)}
    format_ = {"format": campaign.format}
    return format_ if campaign.content is None else format_ | {campaign.format: campaign.content}


def _endpoint(connector: ConnectorEntry) -> ConnectorEndpoint:
    return ConnectorEndpoint(**{name: getattr(connector, name) for name in _ENDPOINT_FIELDS})


def place_of(beacon: IndexedBeacon) -> bytes:
    """The part of a beacon: company, venue and beacon; encoded once for each beacon."""
    place = beacon.encoded_place
    if place is None:
        place = beacon.encoded_place = b'"company":%b,"venue":%b,"beacon":%b,' % (
            _encode(beacon.company_reference),
            _encode(beacon.venue_reference),
            _encode(beacon.reference),
        )
    return place


@lru_cache(maxsize=4096)
def times(detected: int, triggered: int, expires: int) -> bytes:
    """The part with the three times, in epoch seconds."""
    return b'"detected_at":"%b","triggered_at":"%b","expires_at":"%b",' % tuple(
        format_instant(each).encode() for each in (detected, triggered, expires)
    )


def spliced(
    id_: bytes, parts: CampaignParts, place: bytes, zone: bytes, device: bytes, when: bytes
) -> bytes:
    """The message: a Notification, or a ConnectorCall if the campaign needs one."""
    return b'{"id":"%b",%b%b"proximity":"%b","device":%b,%b,%b%b' % (
        id_,
        parts.reference,
        place,
        zone,
        device,
        parts.texts,
        when,
        parts.content,
    )
