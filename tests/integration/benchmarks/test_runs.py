"""A benchmark runs, checks its outcome, and writes its figures."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.documents import as_markdown
from benchmarks.figures import read
from benchmarks.page import as_page


@pytest.mark.timeout(270)
def test_the_trigger_beside_an_alternative(tmp_path: Path):
    file = tmp_path / "figures.json"
    options = "--records 10000 --rounds 1 --workloads scatter --subjects trigger confluent"
    subprocess.run(
        [sys.executable, "-m", "benchmarks", *options.split(), "--json", str(file)],
        check=True,
        timeout=240,
    )
    findings = read(file)
    assert findings.notes == []
    (ratio,) = findings.sheets["ratios"].rows
    assert ratio[:2] == ["scatter", "confluent"]
    assert findings.machine["processors"] >= 1
    results = findings.rounds["scatter"]
    assert [results[name][0]["notifications"] for name in ("trigger", "confluent")] == [20000] * 2
    assert "| scatter | confluent |" in as_markdown({"scatter": findings})
    assert "<svg" in as_page({"scatter": findings})
