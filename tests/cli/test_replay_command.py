"""`proximity replay` without any server, and its page.

Where a Chromium is installed it opens the page, narrow and wide. PROXIMITY_TEST_SCREENSHOTS names a
directory for the pictures.
"""

import base64
import csv
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from engine.cli.application import run
from tests.cli.proximity import Proximity
from tests.cli.replay_run import UUID, campaign, document
from tests.servers.chromium import chromium
from tests.servers.missing import skipping

END = {"end": "2040-12-31T00:00:00+0100"}
# The hall is in Tokyo; its morning of 25 October.
DAY = "2026-10-25T"
HEADER = "uuid,major,minor,proximity,udid,detected_at\n"


def rows(*detections: tuple[str, str]) -> str:
    return HEADER + "".join(f"{UUID},1,1,near,{udid},{DAY}{at}+0900\n" for udid, at in detections)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Detections and two catalogs."""
    detections = [("a", "09:10:00"), ("b", "09:20:00"), ("a", "10:10:00"), ("c", "10:20:00")]
    (tmp_path / "detections.csv").write_text(rows(*detections))
    hello = campaign("Hello", **END)
    (tmp_path / "one.json").write_bytes(document(hello))
    late = campaign("Hello", **END) | {"start_time": "10:00", "end_time": "24:00"}
    (tmp_path / "two.json").write_bytes(document(late, campaign("=Bye", **END)))
    return tmp_path


def replay(files: Path, *arguments: str) -> int:
    first = ("replay", str(files / "detections.csv"), "--catalog", str(files / "one.json"))
    return run([*first, "--without-sql", *arguments])


def test_as_text(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(files) == 0
    output, error = capsys.readouterr()
    assert error == ""
    lines = output.splitlines()
    assert lines[0].startswith("replayed 4 detections of ")
    assert lines[1] == "one.json: 3 notifications to 3 devices"
    (hello,) = (line for line in lines if line.startswith("Hall "))
    assert hello.split() == ["Hall", "Hello", "3", "3", "1"]
    assert [line.split() for line in lines[-3:]] == [
        ["hour", "sent"],
        ["2026-10-25", "09:00", "2"],
        ["2026-10-25", "10:00", "1"],
    ]


def test_two_catalogs_side_by_side(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = files / "out.csv"
    other = ("--compare", str(files / "two.json"))
    sent = files / "sent.csv"
    assert replay(files, *other, "--json", "--csv", str(written), "--sends", str(sent)) == 0
    output, _ = capsys.readouterr()
    found: list[dict[str, Any]] = [json.loads(line) for line in output.splitlines()]
    assert found[0] | {"seconds": 0, "source": ""} == {
        "kind": "replay",
        "source": "",
        "records": 4,
        "undecodable": 0,
        "first_fault": None,
        "detections": 4,
        "seconds": 0,
        "begins_cold": False,
        "notifications": {"one.json": 3, "two.json": 5},
        "devices": {"one.json": 3, "two.json": 3},
    }
    campaigns = {(c["catalog"], c["campaign"]): c for c in found if c["kind"] == "campaign"}
    assert {
        key: (c["sent"], c["only_here"], c["devices_only_here"]) for key, c in campaigns.items()
    } == {
        ("one.json", "Hello"): (3, 2, 1),
        ("two.json", "Hello"): (2, 1, 0),
        ("two.json", "=Bye"): (3, 3, 3),
    }
    hours = {
        (h["campaign"], h["hour"], h["reason"]): (h["detections"], h["only_here"])
        for h in found
        if h["kind"] == "hour" and h["catalog"] == "two.json"
    }
    assert hours["Hello", f"{DAY}09:00:00+0900", "outside_hours"] == (2, None)
    assert hours["Hello", f"{DAY}10:00:00+0900", "granted"] == (2, 1)
    lines = list(csv.DictReader(io.StringIO(written.read_text())))
    assert len(lines) == sum(each["kind"] == "hour" for each in found)
    assert {line["campaign"] for line in lines} == {"Hello", "'=Bye"}
    notified = list(csv.DictReader(io.StringIO(sent.read_text())))
    assert len(notified) == 8
    assert sum(line["only_here"] == "true" for line in notified) == 6
    assert {line["udid"] for line in notified} == {"a", "b", "c"}


def test_a_period_and_a_shift(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    period = ("--from", f"{DAY}10:00:00+0900", "--to", f"{DAY}10:20:00+0900")
    assert replay(files, *period, "--json") == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (summary["detections"], summary["begins_cold"]) == (1, True)
    assert summary["notifications"] == {"one.json": 1}
    assert replay(files, *period, "--warm-up", "1 hour", "--shift", "20 years") == 0
    output, _ = capsys.readouterr()
    assert "one.json: 0 notifications to 0 devices" in output
    assert "ended" in output


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (["replay", "x.csv", "--without-sql"], 2, "needs --catalog"),
        (["replay", "x.csv", "--warm-up", "1 day"], 2, "goes with --from"),
        (["replay", "x.csv", "--from", "yesterday"], 2, "2026-11-20T10:00:00+0100"),
        (["replay", "x.csv", "--shift", "soon"], 2, "not a duration"),
        (["replay", "x.csv", "--json", "--csv", "-"], 2, "--csv: goes to standard output"),
        (["replay", "x.csv", "--html", "-"], 2, "--html: accepted: a file"),
        (["replay", "x.csv", "--sends", "-"], 2, "--sends: accepted: a file"),
        (
            ["replay", "x.csv", "--from", "1795443000000", "--to", "1795443000000"],
            2,
            "--to: is not later than --from",
        ),
        (["replay", "/nowhere/x.csv"], 1, "cannot read /nowhere/x.csv"),
        (["replay", "x.txt"], 2, "cannot tell the format"),
        (["replay", "x.csv", "--html", "/nowhere/x.html"], 1, "cannot write /nowhere/x.html"),
        (["replay", "-", "--catalog", "/nowhere/x.json"], 1, "cannot read /nowhere/x.json"),
    ],
)
def test_impossible_options_are_refused(
    arguments: list[str], status: int, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == status
    output, error = capsys.readouterr()
    assert output == ""
    assert error.count("\n") == 1
    assert expected in error


def test_faults_of_the_files(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "detections.csv").write_text(rows(("a", "09:10:00"), ("b", "9 o'clock")))
    assert replay(files) == 1
    assert f"{files / 'detections.csv'}:3: " in capsys.readouterr().err
    array = files / "detections.json"
    array.write_text(f'[\n{{"uuid": "{UUID}"}}\n]')
    catalog = ("--catalog", str(files / "one.json"), "--without-sql")
    assert run(["replay", str(array), *catalog]) == 1
    assert f"{array}:2: " in capsys.readouterr().err
    lines = files / "detections.jsonl"
    untimed = {"uuid": UUID, "major": 1, "minor": 1, "rssi": -60, "device": {"udid": "a"}}
    lines.write_text(f"no detection\n{json.dumps(untimed)}\n")
    assert run(["replay", str(lines), *catalog]) == 1
    assert f"{lines}:2: detected_at is missing" in capsys.readouterr().err
    (files / "one.json").write_text('{"companies": [{"nam": 1}]}')
    assert replay(files) == 1
    expected = capsys.readouterr().err.splitlines()
    assert expected[-1].startswith("proximity: one.json has ")
    assert all(line.startswith("one.json: companies[0]") for line in expected[:-1])


def test_a_file_without_a_detection(tmp_path: Path) -> None:
    proximity = Proximity(tmp_path, "127.0.0.1:1", "nobody.")
    catalog = proximity.write("catalog.json", document(campaign("Hello", **END)))
    words = ("replay", "-", "--catalog", catalog, "--without-sql")
    done = proximity(*words, given=b"{}\nnothing\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("proximity: there is no detection in standard input; standard ")
    assert done.stderr.count("\n") == 1


HOSTILE = (
    "</script><script>document.title='taken'</script>",
    '"><img src=x onerror="document.title=1">',
    "<svg/onload=document.title=2>",
    "]]><!-- --> &lt;b&gt; \\u003c",
    "{{constructor}} ${document.title} %s",
    "\u05d0\u05d1 A very long name " + "of a campaign " * 15,
)


class Page(HTMLParser):
    """The page as a browser has it before scripts run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag

    def handle_data(self, data: str) -> None:
        if self._inside in self.raw:
            self.raw[self._inside].append(data)
            self._inside = ""
        else:
            self.texts.append(data)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three days of detections, against hostile names; and beside a catalog with fewer."""
    path = tmp_path_factory.mktemp("report")
    lines = []
    for number in range(600):
        minute = number * 7
        at = f"2026-11-{20 + minute // 1440}T{minute // 60 % 24:02}:{minute % 60:02}:00+0900"
        zone = ("near", "unknown", "far")[number % 3]
        lines.append(f"{UUID},1,{1 + number % 2},{zone},phone-{number % 41},{at}\n")
    header = "uuid,major,minor,proximity,udid,detected_at\n"
    (path / "detections.csv").write_text(header + "".join(lines))
    many = [
        campaign(name[:255], cache=f"{hours} hours", **END)
        | {"start_time": f"{hours:02}:00", "end_time": "21:00"}
        for hours, name in enumerate(HOSTILE, start=6)
    ]
    (path / "one.json").write_bytes(document(*many, campaign("Over")))
    (path / "<b>two<br>.json").write_bytes(document(*many[1:4], campaign("New", **END)))
    return path


def written(directory: Path, *arguments: str) -> str:
    """The report of a replay."""
    page = directory / "report.html"
    first = ("replay", str(directory / "detections.csv"), "--catalog", str(directory / "one.json"))
    assert run([*first, "--without-sql", "--html", str(page), *arguments]) == 0
    return page.read_text(encoding="utf-8")


@pytest.fixture(scope="module", params=["alone", "compared"])
def report(request: pytest.FixtureRequest, directory: Path) -> str:
    other = ("--compare", str(directory / "<b>two<br>.json"))
    return written(directory, *(other if request.param == "compared" else ()))


def test_names_are_text(report: str) -> None:
    page = Page(report)
    assert not {tag for tag, _ in page.tags} & {"img", "svg", "br", "iframe", "link", "object"}
    shown = {text.strip() for text in page.texts}
    for name in HOSTILE:
        assert name[:255].strip() in shown
    assert len(page.raw["script"]) == 3  # the data, the library, the page's own
    data = json.loads(page.raw["script"][0])
    assert not set("<>&") & set(page.raw["script"][0])
    labels = {series["label"] for plot in data["plots"] for series in plot["series"]}
    assert labels
    assert all(not key.startswith("on") for _, attributes in page.tags for key in attributes)


def test_nothing_is_fetched(report: str) -> None:
    page = Page(report)
    for tag, attributes in page.tags:
        assert not {"src", "href", "srcset", "data", "action"} & attributes.keys(), tag
    for style in page.raw["style"]:
        assert "url(" not in style
        assert "@import" not in style
    (policy,) = (
        attributes["content"] or ""
        for tag, attributes in page.tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for text in (*page.raw["script"][1:], *page.raw["style"]):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


@pytest.mark.timeout(180)
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_draws_it(report: str, width: int, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(report, encoding="utf-8")
    picture = tmp_path / "report.png"
    dom, errors = opened(page, width, "--dump-dom", f"--screenshot={picture}")
    assert "CONSOLE" not in errors, errors
    plots = len(re.findall(r'<div class="plot"', report))
    assert f'data-drawn="{plots}"' in dom
    assert dom.count("<canvas") == plots
    assert "<title>Replay</title>" in dom  # no name has run
    legends = re.findall(r'class="u-label">(.*?)</div>', dom)
    assert len(legends) > plots
    assert not any(text.startswith("<") for text in legends)
    assert picture.stat().st_size > 10_000
    if wanted := os.environ.get("PROXIMITY_TEST_SCREENSHOTS"):
        kind = "compared" if "side by side" in report else "alone"
        shutil.copy(picture, Path(wanted) / f"report-{kind}-{width}.png")


def opened(page: Path, width: int, *what: str) -> tuple[str, str]:
    """The page in a browser without network, once it is drawn."""
    with skipping("Chromium", instead="PATH"):
        browser = chromium()
    profile = page.parent / "profile"
    done = subprocess.run(
        [
            browser,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--enable-logging=stderr",
            f"--user-data-dir={profile}",
            f"--window-size={width},2600",
            "--virtual-time-budget=3000",
            *what,
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout, done.stderr


@pytest.fixture(autouse=True)
def _no_output(capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    yield
    capsys.readouterr()
