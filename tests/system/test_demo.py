"""`proximity demo`, as a first-time user without a terminal runs it."""

import json
import re
import signal

import pytest

from tests.system.demo import start

pytestmark = pytest.mark.timeout(240)
DETECTIONS = 25_419 + 2 * 6  # readings; a position and a scan of each phone


def test_the_demo_says_what_fired_and_why_the_rest_did_not() -> None:
    process = start("--seconds", "6")
    output, error = process.communicate(timeout=150)
    assert (process.returncode, error) == (0, "")
    assert "25,419 real readings, taken by 6 phones" in output
    counts = dict(re.findall(r"^ *([\d,]+)  (\S.*?)  ", output, re.MULTILINE)[::-1])
    received = re.search(r"What was detected\n(.*?)\n\n", output, re.DOTALL)
    assert received is not None
    numbers = re.findall(r"^ *([\d,]+)", received[1], re.MULTILINE)
    assert sum(int(number.replace(",", "")) for number in numbers) == DETECTIONS
    assert counts
    for reason in ("throttled", "too_far", "no_campaign", "inactive_beacon", "wrong_weekday"):
        assert re.search(rf"^ *[\d,]+  {reason} ", received[1], re.MULTILINE), reason
    for name, form in {
        "Welcome": "template",
        "On the square": "template",
        "Scanned at the door": "url",
    }.items():
        assert re.search(rf"^ +6  {name} +{form}, to 6 phones", output, re.MULTILINE), name
    for silent, why in {
        "Film season": "its campaign is over",
        "Screening tonight": "its campaign does not run at this hour",
        "Reading week": "its campaign has not begun",
        "Guided tour": "its campaign does not run today",
        "Renovation notice": "its campaign is switched off",
        "Desk with power sockets": "it has no place that is switched on",
    }.items():
        assert re.search(rf"^ +0  {silent} +{why}", output, re.MULTILINE), silent
    assert re.search(r"\d+ ms on average", output)
    for form in ("html", "url", "template", "connector"):
        assert re.search(rf"^ +[1-9]\d*  \S.* {form}, to \d phones?", output, re.MULTILINE), form
    example = output[output.index("{\n") : output.index("\n}\n") + 2]
    notification = json.loads(example)
    # The connector role has called the customer's service, and this is its reply.
    assert notification["campaign"]["name"] == "Your loans"
    assert "due tomorrow" in notification["html"]
    counted_line = re.search(
        r"SQL has counted ([\d,]+) detections at active .* and (\d+) notif", output
    )
    assert counted_line is not None
    silent_ones = re.search(r"^ +([\d,]+)  inactive_beacon", received[1], re.MULTILINE)
    assert silent_ones is not None
    assert number(counted_line[1]) == DETECTIONS - number(silent_ones[1])
    assert f"{counted_line[2]} notifications; " in output
    assert "What next:" in output


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_an_interrupted_demo_ends_cleanly() -> None:
    process = start("--seconds", "60")
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("The roles trigger"):
            break
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=40)
    assert (process.returncode, error) == (130, "proximity: interrupted\n")
