"""The schedule of the load generator."""

from collections import Counter

import pytest

from benchmarks.load.traffic import Traffic, numbered, of_catalog

BEACONS = numbered(50)


def traffic(**more) -> Traffic:
    return Traffic(rate=200.0, seconds=10.0, beacons=BEACONS, devices=40, **more)


@pytest.mark.parametrize("pattern", ["dwell", "sweep", "roam", "herd"])
def test_the_same_numbers_give_the_same_meetings(pattern):
    first, second = (list(traffic(pattern=pattern, zipf=1.1).meetings()) for _ in range(2))
    assert first == second
    assert [each.at for each in first] == sorted(each.at for each in first)


@pytest.mark.parametrize("poisson", [False, True])
def test_the_rate_is_kept(poisson):
    meetings = list(traffic(poisson=poisson).meetings())
    assert len(meetings) == pytest.approx(2000, rel=0.1)
    assert all(each.at < 10.0 for each in meetings)


def test_devices_that_dwell_are_at_one_beacon_each():
    homes = {(each.device, each.place) for each in traffic().meetings()}
    assert len(homes) == len({device for device, _ in homes}) == 40


def test_a_sweep_brings_a_new_device_each_time():
    devices = [each.device for each in traffic(pattern="sweep").meetings()]
    assert len(devices) == len(set(devices))


def test_the_herd_enters_within_a_second_and_stays():
    meetings = list(traffic(pattern="herd").meetings())
    entering = [each for each in meetings if each.at < 1.0]
    assert sorted(each.device for each in entering) == list(range(40))
    homes = {each.device: each.place for each in entering}
    assert all(homes[each.device] == each.place for each in meetings)
    assert len(meetings) == pytest.approx(40 + 9 * 200, rel=0.01)


def test_zipf_prefers_few_beacons_and_uniform_none():
    drawn = {
        zipf: Counter(each.place for each in traffic(pattern="roam", zipf=zipf).meetings())
        for zipf in (0.0, 1.2)
    }
    assert drawn[1.2].most_common(1)[0][0] == BEACONS[0]
    assert drawn[1.2].most_common(1)[0][1] > 4 * drawn[0.0].most_common(1)[0][1]


def test_shares_of_unknown_and_malformed():
    meetings = list(traffic(unknown=0.25, malformed=0.1).meetings())
    unknown = [each for each in meetings if not each.known]
    assert len(unknown) == pytest.approx(500, rel=0.25)
    assert all(each.place not in BEACONS for each in unknown)
    assert sum(each.malformed for each in meetings) == pytest.approx(200, rel=0.4)


def test_the_beacons_of_a_catalog(request):
    beacons = of_catalog(request.config.rootpath / "docs" / "examples" / "catalog.json")
    assert beacons
    assert len(set(beacons)) == len(beacons)
