"""An ingestion engineer's first hour: settings that cannot work, the demo, and the README's "Run it
on your own servers" with files that are good and files that are not."""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from dotenv import dotenv_values

from catalog.secrets import is_published, open_cipher
from engine.process.settings_sources import load_settings
from tests.servers.waiting import eventually
from tests.system.test_demo import start
from tests.system.walks.user import ROOT, User, user

README = (ROOT / "README.md").read_text(encoding="utf-8")
UUID = "f7826da6-4fa2-4e98-8024-bc5b71e0893e"
EXAMPLE = "docs/examples/detections.jsonl"


@pytest.fixture
def engineer(
    tmp_path: Path, kafka_bootstrap: str, redis_url: str, postgres_url: str, topic_prefix: str
) -> Iterator[User]:
    with user(tmp_path, topic_prefix, kafka_bootstrap, redis_url, postgres_url) as made:
        yield made


def test_the_file_of_settings_that_the_readme_makes(tmp_path: Path) -> None:
    """A shell reads it, and so does --env-file; its key is nobody else's."""
    lines = re.findall(
        r"^       (install -m 600 docs/.*|echo .*>>.*|\. \./.*)$", README, re.MULTILINE
    )
    assert len(lines) == 3
    script = "\n".join(line.partition("&&")[0] for line in lines)
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    done = subprocess.run(
        ["sh", "-eu", "-c", f"{script}\nenv"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    of_the_shell = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    written = dotenv_values(tmp_path / "proximity.env")
    assert {name: of_the_shell[name] for name in written} == written
    assert len(written) == 4
    key = written["PROXIMITY_SECRET_KEY"] or ""
    assert open_cipher(key).encrypt("x")
    assert not is_published(key)
    load_settings(tmp_path / "proximity.env")


def paste(commands: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["/bin/sh", "-c", commands],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_commands_that_a_serving_demo_prints_can_be_pasted() -> None:
    process = start("--serve", "--seconds", "4")
    assert process.stdout is not None
    printed = ""
    try:
        for line in process.stdout:
            printed += line
            if line.startswith("Notifications as they come:"):
                break
        last = printed[printed.index("Still running") :]
        publish, tail, statistics, verify = re.findall(r"^    (\S.*)$", last, re.MULTILINE)
        assert paste(publish).stdout.startswith("published 5 detections")
        shown = paste(f"{tail} --count 6")
        assert (shown.returncode, shown.stdout.count("-> you: ")) == (0, 6)
        assert "Your loans -> you: Your loans." in shown.stdout
        assert "Self-service lending" in paste(statistics).stdout
        checked = paste(verify)
        assert (checked.returncode, checked.stderr.splitlines()[-1]) == (0, "no differences")
        # Each is shown here as it comes, too.
        arrived = [process.stdout.readline() for _ in range(6)]
        assert all("-> you: " in line for line in arrived)
        open_the_console(last)
    finally:
        process.send_signal(signal.SIGINT)
        output, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (0, "")
    assert output.endswith("stopped\n")


def open_the_console(printed: str) -> None:
    docs = re.search(r"interface  (http://\S+)/docs", printed)
    site = re.search(r"console    (http://\S+)/console\n", printed)
    account = re.search(r"(\S+@\S+) with the password (\S+)", printed)
    assert docs
    assert site
    assert account
    credentials = {"email": account[1], "password": account[2]}
    with httpx.Client(base_url=docs[1], trust_env=False, timeout=30) as client:
        assert client.get("/docs").status_code == 200
        answer = client.post(
            f"{site[1]}/console/sign-in",
            data=credentials,
            headers={"origin": site[1]},
            follow_redirects=True,
        )
        assert credentials["email"] in answer.text
        # What the demo has sent is there to be seen, campaign by campaign.
        assert "Self-service lending" in client.get("/console/statistics").text


async def test_the_readme_on_real_servers(engineer: User) -> None:
    assert "up to date" in engineer("migrate")
    assert "campaigns: " in engineer("catalog", "load", "docs/examples/catalog.json")
    engine = engineer.start("run")
    await engine.until_ready()
    published = engineer("publish", EXAMPLE, "--now")
    assert re.match(r"published \d+ detections", published)
    tail = ("notifications", "tail", "--from-beginning", "--count", "1")
    assert re.search(r"^\d\d:\d\d:\d\d  .* -> device-1: ", engineer(*tail), re.MULTILINE)
    publish_a_sheet_and_an_array(engineer)
    refuse_what_the_engine_would_refuse(engineer)
    await publish_what_is_no_detection(engineer)
    await eventually(lambda: _is_counted(engineer), what="SQL has counted")
    assert re.search(r" campaign .*  Welcome +- +\d +\d +\d$", engineer("statistics"), re.MULTILINE)
    assert re.search(r"^no differences$", engineer("verify"), re.MULTILINE)
    await engine.stop()


def _is_counted(engineer: User) -> bool:
    """One of the example, the sheet, the array, and the last; none of a file with a fault."""
    lines = engineer.rows("statistics", "--kind", "campaign")
    sent: list[int] = [line["notifications"] for line in lines if line["name"] == "Welcome"]
    return sum(sent) == 4  # (in Marseille it may have become midnight meanwhile)


def publish_a_sheet_and_an_array(engineer: User) -> None:
    sheet = f"uuid,major,minor,proximity,udid\n{UUID},1,1,near,of-the-sheet\n"
    assert engineer("publish", engineer.write("good.csv", sheet)).startswith("published 1 ")
    one = json.loads((ROOT / EXAMPLE).read_text().splitlines()[0])
    array = [one | {"device": {"udid": "of-the-array"}}]
    written = engineer.write("good.json", json.dumps(array, indent=2))
    assert engineer("publish", written).startswith("published 1 ")
    tail = ("notifications", "tail", "--from-beginning", "--campaign", "Welcome", "--count", "3")
    shown = engineer(*tail)
    for udid in ("device-1", "of-the-sheet", "of-the-array"):
        assert f"Welcome -> {udid}: Welcome to Harbour Mall" in shown


def refuse_what_the_engine_would_refuse(engineer: User) -> None:
    written = engineer.write("bad.csv", "uuid,major,minor,rssi,udid\nf7826da6,1,1,-60,never\n")
    printed = engineer("publish", written, status=1)
    assert "bad.csv:2: uuid: " in printed
    assert printed.count("\n") == 1, printed


async def publish_what_is_no_detection(engineer: User) -> None:
    """A faulty record becomes a dead letter, and the partition continues."""
    after = {"uuid": UUID, "major": 1, "minor": 1, "rssi": -60, "device": {"udid": "after"}}
    lines = f"not JSON at all\n{json.dumps(after | {'major': 70_000})}\n{json.dumps(after)}\n"
    engineer("publish", engineer.write("strange.jsonl", lines), "--as-is")
    engineer("notifications", "tail", "--from-beginning", "--count", "1", "--udid", "after")

    def listed() -> str:
        printed = engineer("dead-letters", "list")
        return printed if printed.splitlines()[-1].startswith("2 dead letters: ") else ""

    printed = await eventually(listed, what="both are dead letters")
    assert re.search(r" malformed_json .* not JSON at all", printed), printed
    assert re.search(r" invalid_field .*major: 70000", printed), printed
