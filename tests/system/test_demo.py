"""`proximity demo`, as a first-time user without a terminal runs it."""

import json
import os
import re
import signal
import subprocess
import sys

from tests.servers.product_process import ROOT

DETECTIONS = 25_419 + 2 * 6  # readings; a position and a scan of each phone


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
    output, error = process.communicate(timeout=300)
    assert (process.returncode, error) == (0, "")
    assert "25,419 real readings, taken by 6 phones" in output
    detected = output[output.index("What was detected") :].partition("\n\n")[0]
    counts = {
        reason: int(number.replace(",", ""))
        for reason, number in re.findall(r"^(\S+)  .*  ([\d,]+)$", detected, re.MULTILINE)
    }
    assert sum(counts.values()) == DETECTIONS
    assert {"throttled", "too_far", "no_campaign", "inactive_beacon"} <= set(counts)
    for line in (
        "Welcome +template, to 6 phones +6",
        "On the square +template, to 6 phones +6",
        "Scanned at the door +url, to 6 phones +6",
        "Film season +its campaign is over +0",
        "Desk with power sockets +no phone was at a switched on place of it +0",
        r"\S.* html, to \d phones? +[1-9]",
    ):
        assert re.search(rf"^{line}", output, re.MULTILINE), line
    notification = json.loads(output[output.index("{\n") : output.index("\n}\n") + 2])
    # The connector role has called the customer's service, and this is its reply.
    assert notification["campaign"]["name"] == "Your loans"
    assert "due tomorrow" in notification["html"]
    counted = re.search(r"SQL has counted ([\d,]+) detections at active .* and (\d+) notif", output)
    assert counted is not None
    assert int(counted[1].replace(",", "")) == DETECTIONS - counts["inactive_beacon"]
    sent = re.findall(r"^\S.* \w+, to \d phones? +(\d+)$", output, re.MULTILINE)
    assert sum(map(int, sent)) == int(counted[2])


def test_an_interrupted_demo_ends_cleanly() -> None:
    process = start("--seconds", "60")
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("The roles trigger"):
            break
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=200)
    assert (process.returncode, error.splitlines()[-1]) == (130, "proximity: interrupted")
