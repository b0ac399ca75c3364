"""Runs a replay in the test's process."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from engine.cli.publish.form import Format
from engine.cli.replay.outcome import ReplayFindings
from engine.cli.replay.period import ReplayPeriod
from engine.cli.replay.session import ReplayRequest, perform
from engine.process.settings import Settings

_ALWAYS = ReplayPeriod()


class Sent(NamedTuple):
    """A notification that was published, or would have been."""

    id: str
    detected_at: str
    campaign: str
    beacon: str
    udid: str


async def replayed(
    settings: Settings,
    path: Path,
    *,
    file: Path | None = None,
    form: Format = Format.JSONL,
    period: ReplayPeriod = _ALWAYS,
    catalogs: Sequence[Path] = (),
    compares: bool = False,
    without_sql: bool = False,
) -> tuple[ReplayFindings, list[Sent]]:
    """The findings of a replay, and the notifications that it would have sent, by id."""
    stream = io.StringIO()
    request = ReplayRequest(
        file=file,
        form=form,
        period=period,
        shift=0.0,
        catalogs=catalogs,
        compares=compares,
        without_sql=without_sql,
        sends=stream,
    )
    findings = await perform(settings, request)
    stream.seek(0)
    rows = [Sent(*(row[name] for name in Sent._fields)) for row in csv.DictReader(stream)]
    return findings, sorted(rows)
