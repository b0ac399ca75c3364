"""Medians, ratios, and the plan made of them."""

import pytest

from benchmarks.capacity import Load, planned
from benchmarks.catalog import number_of, place_of
from benchmarks.figures import Findings, Spread
from benchmarks.goals import compared
from benchmarks.lineup import ROOT
from benchmarks.load.latency import Latencies
from benchmarks.machine import MachineWatch
from benchmarks.profile import PLACES, place_of_frame
from benchmarks.report import ratios
from benchmarks.workloads import workloads


def result(rate: float, microseconds: float) -> dict[str, float]:
    return {"records": rate, "seconds": 1.0, "seconds_processor": rate * microseconds / 1e6}


def test_a_spread_says_median_least_and_most():
    assert str(Spread([3.0, 1.5, 2.0])) == "2.00 (1.50 to 3.00)"
    assert str(Spread([3.0, 0.0])) == "1.50 (0.00 to 3.00)"
    assert str(Spread([3.0, 0.0, 2.0])) == "2 (0 to 3)"
    assert str(Spread([1234.0])) == "1,234"


def test_ratios_are_those_of_rounds():
    rounds = {
        "trigger": [result(200.0, 10.0), result(100.0, 20.0)],
        "go": [result(100.0, 5.0), result(100.0, 5.0)],
    }
    rates, costs = ratios(rounds)["go"]
    assert (rates.least, rates.most) == (1.0, 2.0)
    assert (costs.least, costs.most) == (0.25, 0.5)


def test_places_and_numbers_of_beacons():
    assert [place_of(each) for each in (0, 999, 1000)] == [(1, 0), (1, 999), (2, 0)]
    assert all(number_of(*place_of(each)) == each for each in (0, 999, 1000, 999_999))


@pytest.mark.parametrize("name", ["dwell", "scatter", "steady", "sweep"])
def test_no_meeting_of_a_workload_is_expected_twice(name):
    workload = workloads(2000)[name]
    records = list(workload.records(2000))
    earlier = workload.earlier_records(2000)
    expected = workload.notifications(2000)
    assert len(records) == 2000
    assert len(expected) == (20 if name == "dwell" else 2000 - len(earlier))


def test_latencies_keep_three_digits():
    latencies = Latencies()
    for milliseconds in range(1, 1001):
        latencies.record(milliseconds / 1000)
    assert latencies.milliseconds(50.0) == pytest.approx(500, rel=0.002)
    assert latencies.milliseconds(99.0) == pytest.approx(990, rel=0.002)
    assert latencies.as_json()["count"] == 1000


def test_the_plan_adds_the_cost_of_grants():
    machine = MachineWatch().described()

    def of(name: str, rounds: object) -> Findings:
        return Findings(
            name=name, command="", machine=machine, options={}, sheets={}, rounds=rounds
        )

    found = {
        "dwell": of("trigger", {"dwell": {"trigger": [result(1000, 5.0)]}}),
        "scatter": of("trigger", {"scatter": {"trigger": [result(1000, 65.0)]}}),
        "memory": of("memory", [[1, 0, 100.0], [1, 10, 400.0], [2, 0, 500.0]]),
    }
    assert planned({"dwell": found["dwell"]}, Load()) is None
    plan = planned(found, Load(devices=1_000_000, rate=1.0, grants=0.1, busy=0.5))
    assert plan is not None
    rows = {row[0]: row[1] for row in plan.sheets["plan"].rows}
    # 1,000,000 x (5 us + 0.1 x 30 us) are 8 processors, of which half may be used.
    assert rows["processors for the trigger"] == "16.0"
    assert rows["memory of Redis"] == "0.4 GiB"


def test_goals_are_compared_with_what_was_measured():
    machine = MachineWatch().described()

    def of(rounds: object) -> Findings:
        return Findings(name="", command="", machine=machine, options={}, sheets={}, rounds=rounds)

    dwell = {"trigger": [result(50, 5.0)], "floor": [result(200, 2.0)], "go": [result(200, 2.0)]}
    crash = {"trigger": [{"lost": 0, "other_id": 0}, {"lost": 1, "other_id": 0}]}
    latency = [{"share": 50, "latency": {"p99": 49.5}}]
    found = {"dwell": of({"dwell": dwell}), "crash": of(crash), "latency": of(latency)}
    assert compared({}) is None
    goals = compared(found)
    assert goals is not None
    rows = {row[0]: row[1:] for row in goals.sheets["table"].rows}
    assert rows["dwell, over the floor (getmany and decode)"] == ["at least 0.5", "0.25", "**no**"]
    assert rows["dwell, times the processor time of Go"] == ["at most 2.5", "2.50", "yes"]
    assert rows["killed: notifications lost"] == ["at most 0", "1", "**no**"]
    assert rows["killed: notifications twice, under another id"] == ["at most 0", "0", "yes"]
    ahead = "p99 to the notification at half of capacity, ms"
    assert rows[ahead] == ["at most 50", "49.50", "yes"]
    left = {row[1] for name, row in rows.items() if name.startswith(("scatter", "recorder"))}
    assert left == {"not measured"}
    assert rows["dwell, over the best Python alternative"][1] == "not measured"


def test_places_of_frames_name_modules_that_exist():
    own = [each for each in PLACES if each.startswith(("engine/", "rules/"))]
    missing = [each for each in own if not any(ROOT.glob(f"{each}*"))]
    assert len(own) > 20
    assert missing == []


def test_frames_belong_to_steps():
    assert place_of_frame("/x/engine/trigger/compose.py") == "compose"
    assert place_of_frame("/x/site-packages/redis/asyncio/connection.py") == "claim: redis-py"
    assert place_of_frame("/x/engine/redis/claims.py") == "claim"
    assert place_of_frame("/usr/lib/python3.11/json/decoder.py") == ""
