"""The report: names are shown as they are and do nothing, and nothing is fetched.

Where a Chromium is installed it opens the page, narrow and wide. PROXIMITY_TEST_SCREENSHOTS names a
directory for the pictures.
"""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from engine.cli.application import run
from tests.integration.replay.test_catalogs import UUID, campaign, document
from tests.servers.chromium import chromium
from tests.servers.missing import skipping

HOSTILE = (
    "</script><script>document.title='taken'</script>",
    '"><img src=x onerror="document.title=1">',
    "<svg/onload=document.title=2>",
    "]]><!-- --> &lt;b&gt; \\u003c",
    "{{constructor}} ${document.title} %s",
    "\u05d0\u05d1 A very long name " + "of a campaign " * 15,
)
END = {"end": "2040-12-31T00:00:00+0100"}


class Page(HTMLParser):
    """What a browser would see before any script has run."""

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


def test_a_replay_of_nothing_has_a_report(tmp_path: Path, directory: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_bytes(b"")
    page = tmp_path / "empty.html"
    catalog = ("--catalog", str(directory / "one.json"))
    assert run(["replay", str(empty), *catalog, "--without-sql", "--html", str(page)]) == 0
    assert Page(page.read_text()).texts.count("None.") == 2


@pytest.mark.timeout(180)
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_draws_it(report: str, width: int, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(report, encoding="utf-8")
    picture = tmp_path / "report.png"
    dom, said = opened(page, width, "--dump-dom", f"--screenshot={picture}")
    assert "CONSOLE" not in said, said
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
