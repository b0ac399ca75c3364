"""What the long run calls flat, and what it does not."""

import re
from collections.abc import Sequence

import pytest

from benchmarks.installation.recent import RecentIds
from benchmarks.soak.page import write_soak_page
from benchmarks.soak.samples import SoakSample, quantile
from benchmarks.soak.verdict import Check, judge_edits, judge_samples

RATE = 100.0


def samples(lags: Sequence[int | None], memory: Sequence[float]) -> list[SoakSample]:
    return [
        SoakSample(
            at=2.0 * number,
            lags={"trigger": lag},
            memory={"trigger a": megabytes},
            processor={"trigger a": 0.1},
            published=RATE,
            notified=RATE,
            latencies=(0.01, None),
        )
        for number, (lag, megabytes) in enumerate(zip(lags, memory, strict=True))
    ]


def verdicts(lags: Sequence[int | None], memory: Sequence[float]) -> dict[str, bool]:
    return {each.name: each.is_well for each in judge_samples(samples(lags, memory), RATE)}


def test_growth_in_the_first_third_alone_is_flat() -> None:
    memory = [50.0, 60, 70, 80, *[90.0] * 4, *[91.0] * 4]
    assert all(verdicts([5, None, *[20] * 10], memory).values())


def test_a_leak_is_reported() -> None:
    found = verdicts([5] * 12, [80.0 + 3 * number for number in range(12)])
    assert found == {
        "memory of trigger a": False,
        "lag of trigger": True,
        "largest lag of trigger": True,
    }


def test_a_role_that_falls_behind_is_reported() -> None:
    found = verdicts([60 * number for number in range(12)], [80.0] * 12)
    assert not found["lag of trigger"]
    assert found["largest lag of trigger"]
    assert not verdicts([0] * 6 + [6001] + [0] * 5, [80.0] * 12)["largest lag of trigger"]


def test_too_few_samples_prove_nothing() -> None:
    (check,) = judge_samples(samples([0] * 8, [80.0] * 8), RATE)
    assert not check.is_well


@pytest.mark.parametrize(
    ("effects", "unseen", "is_well"),
    [([0.2, 3.0], 1, True), ([0.2, 31.0], 0, False), ([0.2], 1, False), ([], 0, False)],
)
def test_edits(effects: list[float], unseen: int, is_well: bool) -> None:
    assert judge_edits(effects, unseen).is_well is is_well


def test_quantiles() -> None:
    assert quantile([], 0.5) is None
    assert quantile([1.0, 2.0, 3.0, 4.0], 0.5) == 3.0
    assert quantile([1.0, 2.0], 0.99) == 2.0


def test_ids_are_known_for_a_while_and_forgotten_in_the_end() -> None:
    now = 0.0
    ids = RecentIds(clock=lambda: now)
    assert ids.is_new("a")
    assert not ids.is_new("a")
    now = 10 * 60.0
    assert not ids.is_new("a")
    for minute in range(10, 40):
        now = minute * 60.0
        assert ids.is_new(minute)
    assert ids.is_new("a")


def test_the_page_carries_everything_and_loads_nothing() -> None:
    check = Check("lag of <trigger>", "0", is_well=True)
    page = write_soak_page(
        "ten minutes",
        [("5", "restarts")],
        [check],
        samples([0] * 9, [80.0] * 9),
        [(3.0, "stopped")],
    )
    assert "lag of &lt;trigger&gt;" in page
    assert not re.search(r"""(src|href)=["']?(http|//)""", page)
    assert "default-src 'none'" in page
    assert page.count('class="plot"') == 5
