"""`proximity demo`, as a first-time user without a terminal runs it, and what it says to paste."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]


WIDTH = 80
pytestmark = pytest.mark.timeout(240)


def start(*arguments: str) -> "subprocess.Popen[str]":
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


def test_the_demo_says_what_fired_and_why_the_rest_did_not() -> None:
    process = start("--seconds", "6")
    output, error = process.communicate(timeout=150)
    assert (process.returncode, error) == (0, "")
    assert "25,419 real readings, taken by 6 phones" in output
    counts = dict(re.findall(r"^ *([\d,]+)  (\S.*?)  ", output, re.MULTILINE)[::-1])
    heard = re.search(r"What was heard\n(.*?)\n\n", output, re.DOTALL)
    assert heard is not None
    numbers = re.findall(r"^ *([\d,]+)", heard[1], re.MULTILINE)
    assert sum(int(number.replace(",", "")) for number in numbers) == 25_419
    assert counts
    for reason in ("throttled", "too_far", "no_campaign", "inactive_beacon", "wrong_weekday"):
        assert re.search(rf"^ *[\d,]+  {reason} ", heard[1], re.MULTILINE), reason
    assert re.search(r"^ +6  Welcome +template, to 6 phones", output, re.MULTILINE)
    for silent, why in {
        "Film season": "it ended on",
        "Screening tonight": "it runs from",
        "Reading week": "it begins on",
        "Guided tour": "it is [A-Z][a-z]+day; runs on",
        "Renovation notice": "it is switched off",
        "Desk with power sockets": "its only beacon",
    }.items():
        assert re.search(rf"^ +0  {silent} +{why}", output, re.MULTILINE), silent
    assert re.search(r"p50 \d+ ms, p99 \d+ ms", output)
    for form in ("html", "url", "template", "connector"):
        assert re.search(rf"^ +[1-9]\d*  \S.* {form}, to \d phones?", output, re.MULTILINE), form
    example = output[output.index("{\n") : output.index("\n}\n") + 2]
    notification = json.loads(example)
    # The connector role has asked the customer's service, and this is what came back.
    assert notification["campaign"]["name"] == "Your loans"
    assert "due tomorrow" in notification["html"]
    told = re.search(r"SQL has counted ([\d,]+) detections of active .* and (\d+) notif", output)
    assert told is not None
    silent_ones = re.search(r"^ +([\d,]+)  inactive_beacon", heard[1], re.MULTILINE)
    assert silent_ones is not None
    assert number(told[1]) == 25_419 - number(silent_ones[1])
    assert f"{told[2]} notifications, " in output
    assert "What next:" in output


def number(text: str) -> int:
    return int(text.replace(",", ""))


@contextmanager
def serving() -> "Iterator[tuple[subprocess.Popen[str], str]]":
    """The demo that goes on, and what it said up to its last line before."""
    process = start("--serve", "--seconds", "4")
    try:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if line.startswith("Notifications as they come:"):
                break
        yield process, said
    finally:
        process.send_signal(signal.SIGINT)
        output, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (0, "")
    assert output.endswith("stopped\n")


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


def test_what_a_serving_demo_prints_can_be_pasted() -> None:
    with serving() as (process, said):
        last = said[said.index("Still running") :]
        assert [line for line in last.splitlines() if len(line) > WIDTH] == []
        found = re.findall(r"^    (\S.*?(?: \\\n.*)?)$", last, re.MULTILINE)
        publish, tail, statistics, verify = found
        assert paste(publish).stdout.startswith("published 3 detections")
        shown = paste(f"{tail} --count 4")
        assert (shown.returncode, shown.stdout.count("-> you: ")) == (0, 4)
        assert "Your loans -> you: Your loans." in shown.stdout
        assert "Self-service lending" in paste(statistics).stdout
        checked = paste(verify)
        assert (checked.returncode, checked.stderr.splitlines()[-1]) == (0, "no differences")
        assert "compared 7 devices" in checked.stderr or "compared 6 devices" in checked.stderr
        # Each is shown here as it comes, too.
        assert process.stdout is not None
        came = [process.stdout.readline() for _ in range(4)]
        assert all("-> you: " in line for line in came)
        look_at_the_interface(last)


def look_at_the_interface(said: str) -> None:
    docs = re.search(r"interface  (http://\S+)/docs", said)
    account = re.search(r"(\S+@\S+) with the password (\S+)", said)
    assert docs is not None
    assert account is not None
    with httpx.Client(base_url=docs[1], trust_env=False, timeout=30) as client:
        assert client.get("/docs").status_code == 200
        credentials = {"email": account[1], "password": account[2]}
        session = client.post("/v2/auth", json=credentials).json()["session"]
        assert session["email"] == account[1]


def test_an_interrupted_demo_ends_cleanly() -> None:
    process = start("--seconds", "60")
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("The roles trigger"):
            break
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=40)
    assert (process.returncode, error) == (130, "proximity: interrupted\n")
