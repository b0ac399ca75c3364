"""Records of the three topics, and a small catalog for them."""

import uuid
from datetime import UTC, datetime
from typing import Any

from engine.cli.verify.recount import (
    ApplicationFact,
    BeaconFact,
    DeviceShare,
    Interval,
    Recount,
    RecountCatalog,
)
from engine.kafka.decoding import Record
from engine.kafka.detection_decoder import OwnFormatDecoder
from engine.kafka.detections import BeaconKey
from tests.unit.engine.records import UUID, detection, record

BEGIN = datetime(2026, 11, 20, tzinfo=UTC).timestamp()
CATALOG = RecountCatalog(
    beacons={
        BeaconKey(UUID, 1, 1): BeaconFact(company_id=1, active=True),
        BeaconKey(UUID, 1, 2): BeaconFact(company_id=2, active=True),
        BeaconKey(UUID, 1, 3): BeaconFact(company_id=1, active=False),
        BeaconKey(UUID, 1, 4): BeaconFact(
            company_id=2, active=True, former_companies=frozenset({1})
        ),
    },
    companies=frozenset({1, 2}),
    applications={
        "good": ApplicationFact(1, active=True, expire_on=None),
        "expired": ApplicationFact(1, active=True, expire_on=datetime(2026, 11, 1, tzinfo=UTC)),
        "off": ApplicationFact(1, active=False, expire_on=None),
    },
)

READ = OwnFormatDecoder(path_loss_exponent=2.0).read


def recount(share: DeviceShare = DeviceShare()) -> Recount:  # noqa: B008  # immutable
    """Nothing counted yet."""
    retained = Interval(BEGIN, BEGIN + 86_400)
    return Recount(CATALOG, retained=retained, read=READ, share=share)


def received(udid: str = "a", minor: int = 1, at: str = "2026-11-20T10:00:00+0000") -> Record:
    """A detection."""
    return record(detection(minor=minor, device={"udid": udid}, detected_at=at))


def sent(
    number: int, udid: str = "a", company: int = 1, at: str = "2026-11-20T10:00:00+0000"
) -> Record:
    """A notification; `number` stands for its id."""
    body: dict[str, Any] = {
        "id": str(uuid.UUID(int=number)),
        "device": {"udid": udid},
        "detected_at": at,
    }
    body |= {name: {"id": 1} for name in ("campaign", "venue", "beacon")}
    return record(body | {"company": {"id": company}})


def signed_in(
    key: str = "good", udid: str = "a", at: str | None = "2026-11-20T10:00:00+0000"
) -> Record:
    """An authentication."""
    return record({"api_key": key, "device": {"udid": udid}, "authenticated_at": at})
