"""The claims that a process remembers, compared with a memory without a bound."""

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.trigger.claim_memory import ClaimMemory

UDIDS = st.sampled_from("abcdef")
CAMPAIGNS = st.integers(1, 3)
TIMES = st.integers(0, 20)
KINDS = st.sampled_from(["remember", "remember", "ask", "expire"])
EVENTS = st.tuples(KINDS, UDIDS, CAMPAIGNS, TIMES, st.none() | TIMES)


@settings(max_examples=100)
@given(most=st.integers(1, 12), parts=st.integers(1, 3), events=st.data())
def test_it_never_invents_a_claim_and_stays_within_its_bound(
    most: int, parts: int, events: st.DataObject
) -> None:
    memory = ClaimMemory(most)
    remembered = [memory.for_assignment() for _ in range(parts)]
    stored: list[dict[tuple[str, int], list[int]]] = [{} for _ in range(parts)]
    for _ in range(events.draw(st.integers(0, 40))):
        number = events.draw(st.integers(0, parts - 1))
        one, truth = remembered[number], stored[number]
        kind, udid, campaign, at, until = events.draw(EVENTS)
        if kind == "remember":
            one.remember(udid, campaign, at, until)
            truth.setdefault((udid, campaign), []).append(at)
        elif kind == "expire":
            one.forget_expired(at)
        for number, known in one.of(udid).items():
            assert known in truth[udid, number]
        generations = [each for part in remembered for each in (part.young, part._old)]
        held = sum(len(claims) + 3 for each in generations for claims in each.values())
        assert memory.held == held <= 4 * most
    for each in remembered:
        each.close()
    assert memory.held == 0


@given(st.lists(st.tuples(UDIDS, CAMPAIGNS, TIMES), max_size=40))
def test_with_room_the_newest_claim_of_each_is_known(claims: list[tuple[str, int, int]]) -> None:
    one = ClaimMemory(1000).for_assignment()
    newest: dict[tuple[str, int], int] = {}
    for udid, campaign, at in claims:
        one.remember(udid, campaign, at)
        newest[udid, campaign] = max(at, newest.get((udid, campaign), at))
    known = {(udid, n): at for udid in "abcdef" for n, at in one.of(udid).items()}
    assert known == newest
