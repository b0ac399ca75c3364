"""A process of the product that is forked behaves as one that is started."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.rig import Rig
from tests.servers import product_process
from tests.servers.product_process import ProductProcess, run_product, start_product
from tests.servers.waiting import eventually

PATH = {"PATH": "/usr/bin:/bin"}


@pytest.fixture(params=["forked", "started"] if product_process.FULL else ["forked"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_process, "FULL", request.param == "started")


pytestmark = pytest.mark.usefixtures("_way")


def run(*arguments: str, given: bytes = b"", **more: str) -> "subprocess.CompletedProcess[str]":
    return run_product(arguments, environment=PATH | more, given=given, deadline=60)


def test_its_streams_and_its_status() -> None:
    done = run("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("proximity ")
    done = run("nonsense")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "proximity: No such command 'nonsense'.\n"


def test_its_environment_is_the_given_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXIMITY_TOPIC_PREFIX", "ours.")
    assert "ours." not in run("settings", "--json").stdout
    assert "theirs." in run("settings", "--json", PROXIMITY_TOPIC_PREFIX="theirs.").stdout


def test_it_reads_what_it_is_given(tmp_path: Path) -> None:
    """More than fits into a pipe; and a process that does not read it all is not waited for."""
    url = f"sqlite:///{tmp_path / 'catalog.sqlite3'}"
    assert run("migrate", PROXIMITY_DATABASE_URL=url).returncode == 0
    create = ("account", "create", "a@example.org", "--company", "Pier", "--create-company")
    password = ("--password-stdin",)
    done = run(*create, *password, given=b"a good password\n", PROXIMITY_DATABASE_URL=url)
    assert done.returncode == 0, done.stderr
    assert run("--version", given=bytes(1_000_000)).returncode == 0


@pytest.fixture
def rig(tmp_path: Path, redis_url: str) -> Iterator[Rig]:
    database = f"sqlite:///{tmp_path / 'catalog.sqlite3'}"
    made = Rig(tmp_path, {"REDIS_URL": redis_url, "DATABASE_URL": database, "API_PORT": "0"})
    assert made.start("migrate").process.wait(60) == 0
    yield made
    made.close()


async def test_signals_end_it(rig: Rig) -> None:
    served = rig.start("api", API_METRICS_PORT="0")
    await eventually(lambda: "serving" in served.output, deadline=60)
    process = served.process
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0)
    # In a session of its own.
    assert os.getsid(process.pid) == process.pid != os.getsid(0)
    await served.stop()
    assert process.poll() == 0
    process.send_signal(signal.SIGTERM)  # nothing is there to hear it

    killed = rig.start("api", API_METRICS_PORT="0")
    killed.kill()
    assert killed.process.returncode == -signal.SIGKILL
    killed.kill()


def test_it_runs_where_it_is_told(tmp_path: Path) -> None:
    (tmp_path / "here.env").write_text("PROXIMITY_TOPIC_PREFIX=here.\n")
    output = tmp_path / "output"
    with output.open("wb") as file, Path(os.devnull).open("rb") as nothing:
        process: ProductProcess = start_product(
            ["--env-file", "here.env", "settings", "--json"],
            environment=PATH,
            directory=tmp_path,
            streams=(nothing.fileno(), file.fileno(), file.fileno()),
        )
    assert process.wait(60) == 0
    assert "here." in output.read_text()


def test_what_only_an_interpreter_reads_is_for_one_of_its_own() -> None:
    done = run("--version", PYTHONWARNINGS="default", PYTHONPATH=str(product_process.ROOT))
    assert (done.returncode, done.stderr) == (0, "")
