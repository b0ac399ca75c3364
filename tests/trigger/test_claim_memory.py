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
    claims = remembered.by_device.get(udid, {})
    found = remembered.not_held(claims, campaigns or (HOURLY, DAILY), at)
    return [each.id for each in found]


def test_what_was_read_denies_no_call() -> None:
    """The connector role may have given the claim back meanwhile: Redis is asked."""
    memory = ClaimMemory(1000)
    one = memory.for_assignment()
    one.remember("phone", {3: 100.0}, NOW, are_all=True)
    assert free(one, 101, CALL) == [3]
    one.remember("phone", {-3: 100.0}, NOW)
    assert free(one, 101, CALL) == []
    one.forget_expired(NOW + 4.9)
    assert free(one, 101, CALL) == []
    one.remember("other", {1: 100.0}, NOW, briefly=True)
    one.forget_expired(NOW + 5)
    assert free(one, 101, CALL) == [3]
    assert free(one, 101, udid="other") == [1, 2]
    one.close()
    one.remember("phone", {1: 100.0}, NOW)
    assert (memory.held, one.by_device) == (0, {})


def test_full_memory_forgets_what_it_has_known_longest() -> None:
    memory = ClaimMemory(100)
    one = memory.for_assignment()
    for number in range(1000):
        one.remember(f"phone {number}", {1: 100.0}, NOW)
        assert memory.held <= 400
    assert free(one, 101, udid="phone 999") == [2]
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
            one.remember(udid, {id_: at}, at, briefly=briefly)
            truth.setdefault((udid, id_), []).append(at)
        elif kind == "expire":
            one.forget_expired(at)
        for id_, known in one.by_device.get(udid, {}).items():
            assert known in truth[udid, id_]
        held = sum(len(each) + 3 for part in remembered for each in part.by_device.values())
        assert memory.held == held <= 4 * most + 6
    for each in remembered:
        each.close()
    assert memory.held == 0
