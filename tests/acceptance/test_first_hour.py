"""The README's "Run it on your own servers", line by line, as an ingestion engineer walks it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.rig import Rig, free_ports
from tests.servers.waiting import eventually

ROOT = Path(__file__).parents[2]


class Walk:
    """Commands with one file of settings, as somebody types them in the project's directory."""

    def __init__(self, env_file: Path) -> None:
        self._env_file = env_file

    def __call__(self, *words: str, status: int = 0) -> str:
        """Run one to its end; what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "engine.cli", "--env-file", str(self._env_file), *words],
            cwd=ROOT,
            env={"PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == status, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr


@pytest.mark.timeout(240)
async def test_the_readme_on_real_servers(
    tmp_path: Path, kafka_bootstrap: str, redis_url: str, postgres_url: str, topic_prefix: str
) -> None:
    port = free_ports()
    settings = {
        "KAFKA_BOOTSTRAP_SERVERS": kafka_bootstrap,
        "REDIS_URL": redis_url,
        "DATABASE_URL": postgres_url,
        "SECRET_KEY": "'a long random passphrase'",
        "TOPIC_PREFIX": topic_prefix,
        "GROUP_PREFIX": topic_prefix,
        "METRICS_HOST": "127.0.0.1",
        "METRICS_PORT": str(port),
        "API_PORT": "0",
        "API_METRICS_PORT": "0",
    }
    env_file = tmp_path / "proximity.env"
    env_file.write_text("".join(f"PROXIMITY_{k}={v}\n" for k, v in settings.items()))
    walk = Walk(env_file)
    assert re.search(r"^bad .*run `proximity migrate`$", walk("check", status=1), re.MULTILINE)
    assert "up to date" in walk("migrate")
    assert "campaigns: " in walk("catalog", "load", "docs/examples/catalog.json")
    assert "bad" not in walk("check")
    rig = Rig(tmp_path, {})
    try:
        engine = rig.start("run", "--env-file", str(env_file), METRICS_PORT=str(port))
        engine.port = port
        await engine.until_ready()
        published = walk("publish", "docs/examples/detections.jsonl", "--now")
        assert re.match(r"published \d+ detections", published)
        tail = ("notifications", "tail", "--from-beginning", "--count", "1")
        assert re.search(r"^\d\d:\d\d:\d\d  .* -> device-1: ", walk(*tail), re.MULTILINE)
        await eventually(lambda: "campaign" in walk("statistics"), what="SQL has counted")
        assert re.search(r"^no differences$", walk("verify"), re.MULTILINE)
        await engine.stop()
    finally:
        rig.close()
