"""`proximity connector test` against a service under the test's control."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands.proximity import Proximity
from tests.servers.http_service import Answer, content, replying, serving

KEY = "a passphrase of some length"
TOKEN, SECRET = "the-secret-token", "whsec_c2VjcmV0LXNlY3JldA=="


@pytest.fixture
def command(tmp_path: Path, sqlite_url: str) -> Proximity:
    more = {
        "PROXIMITY_DATABASE_URL": sqlite_url,
        "PROXIMITY_REDIS_URL": "redis://127.0.0.1:1/0",
        "PROXIMITY_SECRET_KEY": KEY,
        "PROXIMITY_CONNECTOR_ALLOW_NETWORKS": "127.0.0.0/8",
    }
    one = Proximity(tmp_path, "127.0.0.1:1", "unused.", **more)
    assert one("migrate").returncode == 0
    return one


def document(url: str, **fields: Any) -> bytes:
    connector = {
        "name": "content",
        "url": url,
        "method": "POST",
        "auth": "header",
        "parameters": [{"key": "x-token", "value": TOKEN}, {"key": "Host", "value": "elsewhere"}],
        "secret": SECRET,
        **fields,
    }
    companies = [{"name": "Museum", "connector": connector}, {"name": "Library"}]
    return json.dumps({"companies": companies}).encode()


async def run(command: Proximity, answer: Answer, *arguments: str, **fields: Any) -> Any:
    """Load the catalog, then test the connector against a service that answers so."""
    async with serving(answer) as service:
        loaded = await asyncio.to_thread(
            command,
            "catalog",
            "load",
            "-",
            given=document(**{"url": service.url("/content")} | fields),
        )
        assert loaded.returncode == 0, loaded.stderr
        done = await asyncio.to_thread(command, "connector", "test", *arguments)
        return done, service.heard


@pytest.mark.parametrize("company", ["Museum", "1"])
async def test_content(command: Proximity, company: str) -> None:
    done, heard = await run(command, content(), company)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(heard) == 1
    assert heard[0].headers["x-token"] == TOKEN
    assert heard[0].json["device"]["test"] is True
    assert f"POST http://127.0.0.1:{heard[0].headers['host'][10:]}/content" in done.stdout
    assert "x-token: *****" in done.stdout
    assert "webhook-signature: *****" in done.stdout
    assert "left out, for the request says these itself: Host" in done.stdout
    assert "status 200" in done.stdout
    assert done.stdout.rstrip().endswith("template <p>hello</p>")
    assert TOKEN not in done.stdout
    assert SECRET not in done.stdout


async def test_a_refusal(command: Proximity) -> None:
    done, _ = await run(command, replying(204), "Museum", method="GET", auth="get")
    assert done.returncode == 0
    assert "x-token=*****" in done.stdout
    assert done.stdout.rstrip().endswith("no notification: the service declines")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (replying(500, {"you sent": TOKEN}), "connector_status: status 500"),
        (replying(200, [TOKEN]), "connector_reply: not a JSON object"),
        (replying(200, b"\xff" * 9), "connector_reply: not JSON in UTF-8"),
        (replying(200, b"x" * 70_000), "connector_reply_too_large: a reply of more than 65536"),
    ],
)
async def test_a_failure_shows_what_came(command: Proximity, answer: Answer, expected: str) -> None:
    done, _ = await run(command, answer, "Museum")
    assert done.returncode == 1
    assert done.stderr.startswith(f"proximity: {expected}")
    assert done.stderr.count("\n") == 1
    assert TOKEN not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("company", "fields", "expected"),
    [
        ("Library", {}, "the company 'Library' has no connector"),
        ("Nobody", {}, "there is no company 'Nobody'"),
        ("Museum", {"url": "http://10.0.0.1/"}, "connector_forbidden: 10.0.0.1 leads to"),
        ("Museum", {"url": "http://connector.invalid/"}, "connector_unreachable: "),
    ],
)
async def test_what_cannot_be_called(
    command: Proximity, company: str, fields: dict[str, Any], expected: str
) -> None:
    done, heard = await run(command, content(), company, **fields)
    assert (done.returncode, heard) == (1, [])
    assert done.stderr.startswith(f"proximity: {expected}")


async def test_another_key(command: Proximity) -> None:
    async with serving(content()) as service:
        loaded = command("catalog", "load", "-", given=document(service.url()))
        assert loaded.returncode == 0
        command._env["PROXIMITY_SECRET_KEY"] = "quite another passphrase"
        done = await asyncio.to_thread(command, "connector", "test", "Museum")
    assert done.returncode == 1
    assert "PROXIMITY_SECRET_KEY" in done.stderr
