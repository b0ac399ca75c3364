"""Shows the results of a replay as text, and writes each notification as CSV."""

import csv
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, TextIO
from uuid import UUID

from catalog.plain_text import for_csv
from engine.cli.output import LENGTH_NAMES, count_of, print_table, say
from engine.cli.replay.catalogs import ReplayedCatalog
from engine.cli.replay.decisions import Grant
from engine.kafka.messages import format_instant
from engine.trigger.grants import notification_ids
from rules.model import Reason

_MOST_HOURS = 48
_SENT_COLUMNS = (
    *("catalog", "id", "detected_at", "company", "venue", "campaign_id", "campaign"),
    *("format", "beacon", "udid"),
)


def print_results(summary: dict[str, Any], *rows: dict[str, Any]) -> None:
    """Print the objects of --json as sentences and tables; if there are many hours, by day."""
    of_kind = defaultdict[str, list[dict[str, Any]]](list)
    for row in rows:
        of_kind[row["kind"]].append(row)
    for line in _summary(summary, of_kind["campaign"]):
        say(line)
    names = list(summary["notifications"])
    for name in names:
        cells = [
            (row["reason"], f"{row['detections']:,}")
            for row in of_kind["reason"]
            if row["catalog"] == name
        ]
        header: tuple[str, ...] = ("reason", "detections")
        _print_table(f"Detections by the furthest check, {name}", header, cells, 1)
    _print_campaigns(of_kind["campaign"], len(names) > 1)
    header = ("place", "settings", "visits", "back in 5 min", "mean", *LENGTH_NAMES)
    cells = [
        (
            *(row["place"], row["catalog"], f"{row['visits']:,}", f"{row['flaps']:,}"),
            f"{row['seconds'] / max(1, sum(row['lengths'].values())) / 60:.1f} min",
            *(f"{count:,}" for count in row["lengths"].values()),
        )
        for row in sorted(of_kind["visits"], key=lambda row: str(row["place"]))
    ]
    _print_table("Visits", header, cells, len(header) - 2)
    _print_times(of_kind["hour"], names)


def _summary(summary: dict[str, Any], campaigns: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The results in sentences: how much was replayed, a line for each catalog, and notes."""
    decided, seconds = summary["detections"], summary["seconds"]
    rate = f"{seconds:.1f} s ({decided / max(seconds, 0.001):,.0f}/s)"
    yield f"replayed {decided:,} detections of {summary['source']} in {rate}"
    for name, sent in summary["notifications"].items():
        yield f"{name}: {sent:,} notifications to {count_of(summary['devices'][name], 'device')}"
    if summary["undecodable"]:
        yield (
            f"{summary['undecodable']:,} of {summary['records']:,} records are not detections, the "
            f"first: {summary['first_fault']}"
        )
    if summary["begins_cold"]:
        yield (
            "the claims from before are unknown: a campaign may show a notification that its "
            "cache delay forbade (--warm-up replays the time before)"
        )
    if any(row["sent"] and row["format"] == "connector" for row in campaigns):
        yield "customers' services are assumed to answer every call with content"


def _print_table(
    title: str, header: Sequence[str], cells: Sequence[Sequence[str]], numbers: int
) -> None:
    if cells:
        say("")
        say(title)
        print_table(header, cells, numbers=numbers)


def _print_campaigns(campaigns: Sequence[dict[str, Any]], compared: bool) -> None:
    """In a comparison the rows of a campaign follow each other."""
    header = ["venue", "campaign", "catalog", "else mostly", "sent", "devices", "held back"]
    header += ["only here", "devices only here"] if compared else []
    cells = []
    for row in campaigns:
        others = [it for it in row["reasons"] if it not in (Reason.GRANTED, Reason.THROTTLED)]
        mostly = others[0] if others else "" if row["reasons"] else "no detection"
        figures = [row["sent"], row["devices"], row["reasons"].get(Reason.THROTTLED, 0)]
        figures += [row["only_here"], row["devices_only_here"]] if compared else []
        named = (row["venue"], row["campaign"], row["catalog"], mostly)
        cells.append((*named, *(f"{each:,}" for each in figures)))
    if compared:
        cells.sort(key=lambda each: each[:2])
    _print_table("Campaigns", header, cells, len(header) - 4)


def _print_times(hours: Sequence[dict[str, Any]], names: Sequence[str]) -> None:
    """Notifications by hour of the venues' clocks, or by day if there are many hours."""
    by_day = len({row["hour"][:13] for row in hours}) > _MOST_HOURS
    sent = defaultdict[str, Counter[str]](Counter)
    for row in hours:
        hour = row["hour"][:10] if by_day else f"{row['hour'][:13].replace('T', ' ')}:00"
        sent[hour][row["catalog"]] += row["sent"]
    cells = [(at, *(f"{sent[at][name]:,}" for name in names)) for at in sorted(sent)]
    unit = "day" if by_day else "hour"
    title = f"Notifications by {unit}, by the venues' clocks"
    _print_table(title, (unit, *names), cells, len(names))


class SentCsv:
    """Writes every notification as CSV during the replay. The file names devices: personal data."""

    def __init__(self, stream: TextIO | None) -> None:
        """Without a stream nothing is written."""
        self._writer = None if stream is None else csv.writer(stream, lineterminator="\n")
        if self._writer is not None:
            self._writer.writerow(_SENT_COLUMNS)

    def add(self, catalog: ReplayedCatalog, grants: Sequence[Grant]) -> None:
        """Write the notifications of a catalog."""
        if self._writer is None:
            return
        for detection, place, campaign in grants:
            named = catalog.campaigns[campaign.id]
            (id_,) = notification_ids(detection, (campaign,))
            cells = (
                *(catalog.name, str(UUID(bytes=id_)), format_instant(detection.detected_at)),
                *(named.company, named.venue, named.campaign_id, named.campaign, named.format),
                *(place.reference.name, detection.device.udid),
            )
            self._writer.writerow(for_csv(cells))
