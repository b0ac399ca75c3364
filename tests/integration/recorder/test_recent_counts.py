"""The recorder's counts of the last minutes, for the plan of a venue."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from catalog.models import Device
from tests.integration.recorder.readers import DETECTIONS
from tests.integration.recorder.test_recorder import NOW, Rig, rig

__all__ = ["rig"]


async def test_recent_detections_are_reported_once_committed(rig: Rig):
    """Detections of the last minutes, by their own times, without test devices."""
    published: list[Any] = []
    recorder = rig.recorder(DETECTIONS, on_recent=published.append)
    now = datetime.now(UTC).timestamp()
    minutes = [now, now, now - 120, now - 3600, now + 3600]
    batch = [
        *(
            one
            for offset, at in enumerate(minutes)
            for one in rig.detections(range(offset, offset + 1), detected_at=int(at * 1000))
        ),
        *rig.detections(range(5, 6), detected_at=int(now * 1000), device={"udid": "of the team"}),
    ]
    async with rig.scene.database.write.begin() as session:
        company = {"company_id": rig.scene.company.id, "create_on": NOW, "update_on": NOW}
        session.add(Device(udid="of the team", test=True, **company))
    await recorder.handle(batch)
    # A second recorder that reads the same records writes none, and counts none.
    await rig.recorder(DETECTIONS, on_recent=published.append).handle(batch)
    (counts,) = published
    here = (rig.scene.venue.id, rig.scene.beacon.id)
    expected = Counter((*here, int(at // 60)) for at in minutes[:3])
    assert counts == expected
