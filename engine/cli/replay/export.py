"""Writes the outcome for programs, as JSON lines and CSV, and the list of all notifications."""

import csv
from collections.abc import Iterator, Sequence
from typing import Any, TextIO
from uuid import UUID

from catalog.plain_text import for_csv
from engine.cli.replay.decisions import CatalogReplay
from engine.cli.replay.outcome import CampaignRow, HourRow, Outcome, ReplayFindings
from engine.kafka.timestamps import format_instant
from engine.trigger.grants import Grant

_HOUR_COLUMNS = (
    "catalog",
    "company",
    "venue",
    "campaign_id",
    "campaign",
    "hour",
    "reason",
    "detections",
    "only_here",
)
_SENT_COLUMNS = (
    "catalog",
    "id",
    "detected_at",
    "company",
    "venue",
    "campaign_id",
    "campaign",
    "format",
    "beacon",
    "udid",
    "only_here",
)


def json_lines(findings: ReplayFindings) -> Iterator[dict[str, Any]]:
    """One object a line; `kind` is replay, reason, campaign or hour."""
    yield {
        "kind": "replay",
        "source": findings.source,
        "records": findings.records,
        "undecodable": findings.undecodable,
        "first_fault": findings.first_fault or None,
        "detections": findings.decided,
        "seconds": round(findings.seconds, 3),
        "begins_cold": findings.begins_cold,
        "notifications": {each.name: each.sent for each in findings.outcomes},
        "devices": {each.name: each.devices for each in findings.outcomes},
    }
    for outcome in findings.outcomes:
        for reason, count in outcome.detections.items():
            line = {"catalog": outcome.name, "reason": reason.value, "detections": count}
            yield {"kind": "reason", **line}
        for row in outcome.campaigns:
            yield {"kind": "campaign", "catalog": outcome.name, **_campaign(row)}
        for hour in outcome.rows:
            yield {"kind": "hour", **dict(zip(_HOUR_COLUMNS, _cells(outcome, hour), strict=True))}


def _campaign(row: CampaignRow) -> dict[str, Any]:
    campaign = row.campaign
    return {
        **campaign.place._asdict(),
        "campaign_id": campaign.id,
        "campaign": campaign.name,
        "format": campaign.format,
        "sent": row.sent,
        "devices": row.devices,
        "reasons": {reason.value: count for reason, count in row.reasons.items()},
        "only_here": row.only_here,
        "devices_only_here": row.devices_only_here,
    }


def _cells(outcome: Outcome, row: HourRow) -> Sequence[Any]:
    campaign = row.campaign
    named = (None, None) if campaign is None else (campaign.id, campaign.name)
    return (
        outcome.name,
        *row.place,
        *named,
        row.written_hour,
        row.reason.value,
        row.detections,
        row.only_here,
    )


def write_csv(findings: ReplayFindings, stream: TextIO) -> int:
    """Write the hours, after a header. Returns the number of lines after it."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(_HOUR_COLUMNS)
    count = 0
    for outcome in findings.outcomes:
        for row in outcome.rows:
            writer.writerow(for_csv(_cells(outcome, row)))
            count += 1
    return count


class SentCsv:
    """Writes every notification as CSV during the replay. The file names devices: personal data."""

    def __init__(self, stream: TextIO, *, compared: bool) -> None:
        self._writer = csv.writer(stream, lineterminator="\n")
        self._compared = compared
        self._writer.writerow(_SENT_COLUMNS)

    def add(self, replay: CatalogReplay, grants: Sequence[Grant], only: set[int]) -> None:
        """Write the notifications of a catalog.

        `only` are the positions of those that the other catalog does not send.
        """
        for position, grant in enumerate(grants):
            campaign = replay.catalog.campaigns[grant.campaign.id]
            here = str(position in only).lower() if self._compared else ""
            cells = (
                replay.catalog.name,
                str(UUID(bytes=grant.notification_id)),
                format_instant(grant.detection.detected_at),
                *campaign.place,
                campaign.id,
                campaign.name,
                campaign.format,
                grant.beacon.reference.name,
                grant.udid,
                here,
            )
            self._writer.writerow(for_csv(cells))
