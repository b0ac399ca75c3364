"""An ingestion engineer's first hour: the demo, and the README's "Run it on your own servers"."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
from dotenv import dotenv_values

from catalog.secrets import is_published, open_cipher
from engine.process.settings_sources import load_settings
from tests.servers.proximity import ROOT
from tests.servers.waiting import eventually
from tests.system.walks.conftest import User

README = (ROOT / "README.md").read_text(encoding="utf-8")
DETECTIONS = 25_419 + 2 * 6  # readings; a position and a scan of each phone


def demo(*arguments: str) -> "subprocess.Popen[str]":
    # What is set for the user's own engine must not reach the demo.
    env = os.environ | {"PROXIMITY_DATABASE_URL": "sqlite:////nowhere/x", "COLUMNS": "200"}
    return subprocess.Popen(
        [sys.executable, "-m", "engine.cli", "demo", *arguments],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def paste(script: str, directory: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["/bin/sh", "-eu", "-c", script],
        cwd=directory,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_file_of_settings_that_the_readme_makes(tmp_path: Path) -> None:
    """A shell reads it, and so does --env-file; its key is nobody else's."""
    lines = re.findall(
        r"^       (install -m 600 docs/.*|echo .*>>.*|\. \./.*)$", README, re.MULTILINE
    )
    assert len(lines) == 3
    script = "\n".join(line.partition("&&")[0] for line in lines)
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    shown = paste(f"{script}\nenv", tmp_path).stdout
    of_the_shell = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    written = dotenv_values(tmp_path / "proximity.env")
    assert {name: of_the_shell[name] for name in written} == written
    assert len(written) == 4
    key = written["PROXIMITY_SECRET_KEY"] or ""
    assert open_cipher(key).encrypt("x")
    assert not is_published(key)
    load_settings(tmp_path / "proximity.env")


def test_an_interrupted_demo_ends_cleanly() -> None:
    process = demo("--seconds", "60")
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("The roles trigger"):
            break
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=300)
    assert (process.returncode, error.splitlines()[-1]) == (130, "proximity: interrupted")


def test_the_demo_says_what_fired_and_its_commands_can_be_pasted() -> None:
    process = demo("--serve", "--seconds", "6")
    assert process.stdout is not None
    printed = ""
    try:
        for line in process.stdout:
            printed += line
            if line.startswith("Notifications as they come:"):
                break
        assert_summary(printed)
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
        output, error = process.communicate(timeout=300)
    assert (process.returncode, error) == (0, "")
    assert output.endswith("stopped\n")


def assert_summary(printed: str) -> None:
    """What fired, why the rest did not, and that SQL has counted it."""
    assert "25,419 real readings, taken by 6 phones" in printed
    detected = printed[printed.index("what was detected") :].partition("\n\n")[0]
    counts = {
        reason: int(number.replace(",", ""))
        for reason, number in re.findall(r"^(\S+) +([\d,]+)$", detected, re.MULTILINE)
    }
    assert sum(counts.values()) == DETECTIONS
    assert {"throttled", "too_far", "no_campaign", "inactive_beacon"} <= set(counts)
    for line in (
        "Welcome +template +6 +6 +throttled",
        "Scanned at the door +url +6 +6 +-",
        "Film season +url +0 +0 +ended",
        "Desk with power sockets +template +0 +0 +nobody was at its places",
        r"\S.* html +[1-9] +\d",
    ):
        assert re.search(rf"^{line}", printed, re.MULTILINE), line
    notification = json.loads(printed[printed.index("{\n") : printed.index("\n}\n") + 2])
    # The connector role has called the customer's service, and this is its reply.
    assert notification["campaign"]["name"] == "Your loans"
    assert "due tomorrow" in notification["html"]
    counted = re.search(
        r"SQL has counted ([\d,]+) detections at active .* and (\d+) notif", printed
    )
    assert counted is not None
    assert int(counted[1].replace(",", "")) == DETECTIONS - counts["inactive_beacon"]
    sent = re.findall(r"^\S.* (?:template|url|html|connector) +(\d+) ", printed, re.MULTILINE)
    assert sum(map(int, sent)) == int(counted[2])


def open_the_console(printed: str) -> None:
    docs = re.search(r"interface  (http://\S+)/docs", printed)
    site = re.search(r"console    (http://\S+)/console\n", printed)
    account = re.search(r"(\S+@\S+) with the password (\S+)", printed)
    assert docs
    assert site
    assert account
    credentials = {"email": account[1], "password": account[2]}
    with httpx.Client(base_url=docs[1], trust_env=False, timeout=60) as client:
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


async def test_the_readme_on_real_servers(user: User) -> None:
    assert "up to date" in user("migrate")
    assert "campaigns: " in user("catalog", "load", "docs/examples/catalog.json")
    engine = user.start("run")
    await engine.until_ready()
    tail = ("notifications", "tail", "--from-beginning", "--count", "1")
    for name, udid in (("detections", "1"), ("places", "3"), ("places", "4")):
        published = user("publish", f"docs/examples/{name}.jsonl", "--now")
        assert re.match(r"published \d+ detections", published)
        printed = user(*tail, "--udid", f"device-{udid}")
        assert re.search(rf"^\d\d:\d\d:\d\d  .* -> device-{udid}: ", printed, re.MULTILINE)

    async def is_counted() -> bool:
        lines = user.rows("statistics", "--kind", "campaign")
        return sum(int(line["notifications"]) for line in lines) >= 3

    await eventually(is_counted, what="SQL has counted")
    assert re.search(r" campaign .*  Welcome +0 +\d +\d +0$", user("statistics"), re.MULTILINE)
    assert re.search(r"^no differences$", user("verify"), re.MULTILINE)
    await engine.stop()
