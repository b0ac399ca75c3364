"""`proximity demo`, as a first-time user without a terminal runs it."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


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
    output, error = process.communicate(timeout=90)
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
        "Guided tour": "it is [A-Z][a-z]+day, and it runs on",
        "Renovation notice": "it is switched off",
        "Desk with power sockets": "its only beacon",
    }.items():
        assert re.search(rf"^ +0  {silent} +{why}", output, re.MULTILINE), silent
    assert re.search(r"p50 \d+ ms, p99 \d+ ms", output)
    for form in ("html", "url", "template"):
        assert f'"format": "{form}"' in output
    assert "What next:" in output


def test_an_interrupted_demo_ends_cleanly() -> None:
    process = start("--seconds", "60")
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("The trigger is running"):
            break
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=40)
    assert (process.returncode, error) == (1, "proximity: interrupted\n")
