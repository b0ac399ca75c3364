"""The claims that a process remembers."""

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.trigger.claim_memory import ClaimMemory, RememberedClaims
from rules.model import CampaignSnapshot
from tests.rules.records import campaign

NOW = 1000.0
HOURLY, DAILY = campaign(id=1, delay=3600), campaign(id=2, delay=86_400)
CALL = campaign(id=3, delay=3600, format="connector", content=None)

UDIDS = st.sampled_from("abcdef")
CAMPAIGNS = st.integers(1, 3)
TIMES = st.integers(0, 20)
KINDS = st.sampled_from(["remember", "remember", "ask", "expire"])
EVENTS = st.tuples(KINDS, UDIDS, CAMPAIGNS, TIMES, st.booleans())


def free(
    remembered: RememberedClaims, at: float, *campaigns: CampaignSnapshot, udid: str = "phone"
) -> list[int]:
    """The ids of the campaigns that memory does not deny."""
    found = remembered.not_held(remembered.of(udid), campaigns or (HOURLY, DAILY), at)
    return [each.id for each in found]


def test_what_was_read_denies_no_call() -> None:
    """The connector role may have given the claim back meanwhile: Redis is asked."""
    memory = ClaimMemory(1000)
    one = memory.for_assignment()
    one.remember("phone", [], NOW, NOW, read={3: 100.0})
    assert free(one, 101, CALL) == [3]
    one.remember("phone", [CALL], 100.0, NOW)
    assert free(one, 101, CALL) == []
    one.forget_expired(NOW + 4.9)
    assert free(one, 101, CALL) == []
    one.remember("other", [HOURLY], 100.0, NOW, briefly=True)
    one.forget_expired(NOW + 5)
    assert free(one, 101, CALL) == [3]
    assert free(one, 101, udid="other") == [1, 2]
    one.close()
    one.remember("phone", [HOURLY], 100.0, NOW)
    assert (memory.held, one.young) == (0, {})


def test_the_claims_of_a_device_that_stays_are_not_forgotten() -> None:
    memory = ClaimMemory(100)
    one = memory.for_assignment()
    one.remember("stays", [HOURLY], 100.0, NOW)
    for number in range(1000):
        one.remember(f"phone {number}", [HOURLY], 100.0, NOW)
        assert free(one, 101, udid="stays") == [2]
        assert memory.held <= 400
    assert free(one, 101, udid="phone 10") == [1, 2]


@settings(max_examples=100)
@given(most=st.integers(4, 16), parts=st.integers(1, 3), events=st.data())
def test_it_never_invents_a_claim_and_stays_within_its_bound(
    most: int, parts: int, events: st.DataObject
) -> None:
    memory = ClaimMemory(most)
    remembered = [memory.for_assignment() for _ in range(parts)]
    stored: list[dict[tuple[str, int], list[int]]] = [{} for _ in range(parts)]
    for _ in range(events.draw(st.integers(0, 40))):
        number = events.draw(st.integers(0, parts - 1))
        one, truth = remembered[number], stored[number]
        kind, udid, id_, at, briefly = events.draw(EVENTS)
        if kind == "remember":
            one.remember(udid, [campaign(id=id_, delay=60)], at, at, briefly=briefly)
            truth.setdefault((udid, id_), []).append(at)
        elif kind == "expire":
            one.forget_expired(at)
        for id_, known in one.of(udid).items():
            assert known in truth[udid, id_]
        generations = [each for part in remembered for each in (part.young, part._old)]
        held = sum(len(claims) + 3 for each in generations for claims in each.values())
        assert memory.held == held <= 4 * most + 6
    for each in remembered:
        each.close()
    assert memory.held == 0
