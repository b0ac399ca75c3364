"""Tables of figures in documents, and the page."""

from argparse import Namespace
from pathlib import Path

from benchmarks.documents import as_markdown, filled
from benchmarks.figures import Chart, Findings, Sheet, Spread, as_options
from benchmarks.page import as_page

MACHINE = {
    "processors": 2,
    "processor": "a processor",
    "python": "3.11",
    "at": "2026-11-22T05:00:00+00:00",
    "load_before": 3.0,
    "others_share": 0.2,
    "stolen_share": 0.1,
    "busy": True,
}
DOCUMENT = """\
# Title

<!-- figures crash:table -->
| old |
<!-- end -->

Between.

<!-- figures other:table -->
stays
<!-- end -->
"""


def findings(**more) -> Findings:
    return Findings(
        name="crash",
        command="python -m benchmarks.crash",
        machine=MACHINE,
        options={"records": "100"},
        sheets={"table": Sheet("Killed", ["subject", "lost|found"], [["go <1>", "3"]])},
        **more,
    )


def test_a_place_is_filled_and_all_else_stays():
    after, written = filled(DOCUMENT, {"crash": findings()})
    assert written == ["crash:table"]
    assert "| subject | lost\\|found |" in after
    assert "| go <1> | 3 |" in after
    assert "| old |" not in after
    assert after.startswith("# Title\n\n<!-- figures crash:table -->\n")
    assert after.endswith(DOCUMENT[DOCUMENT.index("<!-- end -->") :])


def test_filling_twice_is_filling_once():
    once, _ = filled(DOCUMENT, {"crash": findings()})
    assert filled(once, {"crash": findings()})[0] == once


def test_a_busy_machine_is_reported():
    after, _ = filled(DOCUMENT, {"crash": findings()})
    assert "`python -m benchmarks.crash --records 100`" in after
    assert "**The machine was busy** (load 3.0 before; others had 30% of it)" in after
    resting = findings()
    resting.machine = MACHINE | {"busy": False}
    assert "busy" not in filled(DOCUMENT, {"crash": resting})[0]


def test_the_full_command_is_reported_without_secrets():
    given = Namespace(
        workloads=["scatter", "steady"],
        records=100,
        warm_records=None,
        database="postgresql://me:hidden@host/postgres",
        json=Path("figures.json"),
    )
    options = as_options(given)
    assert "hidden" not in str(options)
    assert set(options) == {"workloads", "records", "database"}
    document = findings()
    document.options = options
    after, _ = filled(DOCUMENT, {"crash": document})
    assert "`python -m benchmarks.crash --workloads scatter steady --records 100`" in after


def test_markdown_and_page_have_all_tables():
    chart = Chart("Lost & found", "/s", [Spread([1.0, 2.0, 4.0]).bar("go <1>")])
    found = {"crash": findings(charts=[chart], notes=["left out: <x>"])}
    assert "### Killed" in as_markdown(found)
    page = as_page(found)
    assert "<td>go &lt;1&gt;</td>" in page
    assert "Lost &amp; found (more is better)" in page
    assert "left out: &lt;x&gt;" in page
    assert "<1>" not in page
