"""Presence in SQL: visits a day and place and their lengths, each event once, without persons."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from catalog.models import CountedVisitEvent, Device
from tests.recorder.scene import PRESENCE, Scene
from tests.servers.schema import on_sqlite


def number(n: int) -> str:
    return str(UUID(int=n))


@on_sqlite
@pytest.mark.parametrize(
    "wrong",
    [
        {"type": "left"},
        {"type": "exit"},
        {"place": {"kind": "nfc", "id": 1, "name": ""}},
        {"device": {"udid": "a\0b"}},
        {"entered_at": "yesterday"},
        {"id": "7"},
        {"venue": {"id": 2**63, "name": ""}},
        {"type": "exit", "duration_seconds": -1},
    ],
)
async def test_what_is_no_event_is_a_dead_letter(scene: Scene, wrong: dict[str, Any]) -> None:
    bad = scene.presence(0, str(uuid4()), **wrong)
    await scene.recorder(PRESENCE).handle([bad, scene.presence(1, number(1))])
    assert len(scene.letters.reasons) == 1
    assert await scene.visits() == {("venue", 0): (1, 0, 0)}
    # No person is stored.
    assert await scene.count(Device) == 1
    columns = {column.name for column in CountedVisitEvent.__table__.columns}
    assert columns == {"id", "company_id", "at", "recorded_on"}
