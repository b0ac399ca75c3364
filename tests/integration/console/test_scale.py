"""Pages of a company with a million devices, 10,000 beacons and 2,000 campaigns.

With PROXIMITY_TEST_FULL=1, on PostgreSQL. Statements and size of each page are bounded; how long
it took is printed (`-s`).
"""

import os
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from sqlalchemy import text

from api.sessions.sign_in import Passwords
from engine.process.settings_sources import load_settings
from engine.redis.figure_store import CompanyDay, FigureStore
from engine.redis.recent_detections import BeaconMinute, RecentDetectionStore
from rules.day_figures import CampaignReason, DayFigures
from rules.model import Reason
from tests.integration.api.harness import Harness, harness
from tests.integration.api.statement_count import counted
from tests.integration.console.visitor import Visitor
from tests.servers.schema import make_schema

pytestmark = [
    pytest.mark.skipif("PROXIMITY_TEST_FULL" not in os.environ, reason="PROXIMITY_TEST_FULL=1"),
    pytest.mark.timeout(600),
]
UUID = "b5c4a7e0-6f0d-4c8e-9d5a-2c1f7a9e4b10"
# Two venues: what a venue may have at most, and as much again in campaigns.
ROWS = (
    """INSERT INTO venue (company_id, name, address, active, time_zone, width, height)
       SELECT id, 'Venue ' || n, '', true, 'Europe/Paris', 500, 300
       FROM company, generate_series(1, 2) n""",
    f"""INSERT INTO beacon (venue_id, name, uuid, major, minor, active, proximity, x, y)
       SELECT (SELECT min(id) FROM venue), 'Beacon ' || n, '{UUID}', 1, n, true, 'near',
       n % 500, n % 300 FROM generate_series(1, 10000) n""",
    """INSERT INTO campaign (venue_id, name, push, title, format, url, cache, delay, start_at,
       start_offset, end_at, end_offset, start_minute, end_minute, active, weekdays, nfcs, qrcodes)
       SELECT (SELECT min(id) FROM venue) + n / 1001, 'Campaign ' || n, 'p', 't', 'url', 'https://x/',
       'day', 86400, '2020-01-01', 60, '2090-01-01', 60, 540, 1200, true, 127, '[]', '[]'
       FROM generate_series(1, 2000) n""",
    """INSERT INTO campaign_beacon (campaign_id, beacon_id)
       SELECT c.id, b.id FROM campaign c JOIN beacon b ON b.id % 2000 = c.id % 2000""",
    """INSERT INTO device (company_id, udid, nb_beacon, nb_campaign, test, create_on, update_on)
       SELECT id, 'device-' || n, 40, 2, false, now(), now()
       FROM company, generate_series(1, 1000000) n""",
    """INSERT INTO detection_trace (device_id, venue_id, beacon_id, status, create_on)
       SELECT d.id, b.venue_id, b.id, 'near', now() FROM device d, beacon b
       WHERE d.udid = 'device-7' AND b.id % 10 = 0""",
    """INSERT INTO statistic (day, kind, ref, venue_id, detections, devices, notifications)
       SELECT current_date - n, 'beacon', id, venue_id, id % 97, id % 31, id % 7
       FROM beacon, generate_series(0, 29) n""",
    """INSERT INTO statistic (day, kind, ref, venue_id, detections, devices, notifications)
       SELECT current_date - n, 'campaign', id, venue_id, 0, id % 31, id % 43
       FROM campaign, generate_series(0, 29) n""",
    """INSERT INTO statistic (day, kind, ref, venue_id, detections, devices, notifications)
       SELECT current_date - n, 'venue', id, id, 1000000, 90000, 40000
       FROM venue, generate_series(0, 29) n""",
    """INSERT INTO audit_entry (company_id, create_on, account_id, email, request, action, kind,
       ref, before, after)
       SELECT id, now(), 1, 'a@b.c', 'r', 'edit', 'beacon', n, '{}', '{"name": "x"}'
       FROM company, generate_series(1, 100000) n""",
    "ANALYZE",
)
# The most statements of a page; 20 explanations take nine statements each.
STATEMENTS = {"/parts/silent": 250, "/states": 250}
MOST_STATEMENTS = 25
MOST_BYTES = 500_000


async def grown(api: Harness) -> Visitor:
    visitor = Visitor(api, await api.account())
    async with api.database.engine.begin() as connection:
        for statement in ROWS:
            await connection.execute(text(statement))
    return visitor


async def test_every_page_is_bounded(postgres_url: str, redis_url: str):
    settings = load_settings(
        database_url=postgres_url,
        redis_url=redis_url,
        secret_key="a passphrase of the test",
        kafka_bootstrap_servers="127.0.0.1:9",
    )
    await make_schema(postgres_url)
    passwords = Passwords()
    async with harness(settings, passwords, with_console=True) as api:
        visitor = await grown(api)
        venue = (await api.call("GET", "/region?limit=1", visitor.headers)).json()[0]["id"]
        where = f"/lieu/{venue}/campaign?limit=1"
        campaign = (await api.call("GET", where, visitor.headers)).json()[0]["id"]
        found = (await api.call("GET", "/crm?udid=device-7", visitor.headers)).json()
        await fill_figures(api, visitor)
        own = f"/venues/{venue}"
        await detected(api, venue)
        for path in (
            "",
            "/parts/figures",
            "/parts/hours",
            "/parts/reasons",
            "/parts/largest/campaigns",
            "/parts/largest/beacons",
            "/parts/silent",
            "/parts/roles",
            "/live",
            "/venues",
            own,
            f"{own}/recent",
            f"{own}/campaigns",
            f"{own}/campaigns/states",
            f"{own}/campaigns/{campaign}",
            f"{own}/campaigns/{campaign}/results",
            "/devices",
            f"/devices/{found[0]['id']}",
            f"/devices/{found[0]['id']}/held",
            "/statistics",
            "/statistics?kind=beacon",
            "/audit",
        ):
            await is_bounded(api, visitor, path)
    passwords.close()


async def detected(api: Harness, venue: int) -> None:
    """Every beacon, in each of the last minutes."""
    store = RecentDetectionStore(redis=api.stores.redis, prefix="proximity:", deadline=30.0)
    async with api.database.engine.connect() as connection:
        found = (await connection.execute(text("SELECT id FROM beacon"))).scalars().all()
    now = int(time.time() // 60)
    for minute in range(now - 14, now + 1):
        await store.add({BeaconMinute(venue, beacon, minute): 1 for beacon in found})


async def fill_figures(api: Harness, visitor: Visitor) -> None:
    """As many sums as a company may have, on each day."""
    venues = (await api.call("GET", "/region", visitor.headers)).json()
    where = f"/lieu/{venues[0]['id']}/campaign"
    numbers = [each["id"] for each in (await api.call("GET", where, visitor.headers)).json()]
    figures = DayFigures(
        detections=Counter(dict.fromkeys(range(24), 10**9)),
        notifications=Counter(dict.fromkeys(range(24), 10**6)),
        reasons=Counter(dict.fromkeys(Reason, 10**9)),
        campaigns=Counter(
            {
                CampaignReason(number, reason): number
                for reason in (Reason.ENDED, Reason.THROTTLED)
                for number in numbers[:1000]
            }
        ),
    )
    store = FigureStore(redis=api.stores.redis, prefix="proximity:", deadline=10.0)
    async with api.database.read() as session:
        company = int(await session.scalar(text("SELECT min(id) FROM company")) or 0)
    today = datetime.now(UTC).date()
    for back in range(31):
        day = CompanyDay(company, today - timedelta(days=back))
        assert await store.add({day: figures}) == []


async def is_bounded(api: Harness, visitor: Visitor, path: str) -> None:
    started = time.perf_counter()
    with counted(api.database) as statements:
        answer: httpx.Response = await visitor.client.get(f"/console{path}")
    took = time.perf_counter() - started
    assert answer.status_code == 200, f"{path}: {answer.text[:300]}"
    print(f"{took * 1000:6.0f} ms {len(statements):4} {len(answer.content):8} {path}")
    most = next((n for part, n in STATEMENTS.items() if part in path), MOST_STATEMENTS)
    assert len(statements) <= most, path
    assert len(answer.content) <= MOST_BYTES, path
