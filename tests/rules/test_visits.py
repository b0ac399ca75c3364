"""Visits, beside a brute force that looks at the whole history for each visit; and those of phones
that were carried through a real library."""

import csv
import gzip
from collections import defaultdict
from dataclasses import dataclass, field
from importlib.resources import files

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rules.model import Zone
from rules.parsing import zone_from_rssi
from rules.visits import Observation, Visit, VisitBook, VisitPlace, weakest_signal
from tests.rules.campaigns import one_of_each

VENUE = VisitPlace(("venue", 1), (1,), 40)
PLACES = (
    VisitPlace(("beacon", 1), (1,), 30, (1, 2)),
    VisitPlace(("beacon", 2), (2,), 10),
    VisitPlace(("geofence", 1), (3,), 30, (1,)),
)
VISITORS = ((1, "a"), (1, "b"), (2, "a"))
WEAKEST = -70.0


@dataclass
class Recorded:
    """The record of a detection."""

    topic: str
    partition: int
    offset: int


@dataclass
class Stay:
    """A visit of the oracle; `held` has the steps, `over` the step at which it was ended, and
    `ended` the time of what ended it."""

    silence: float
    held: list[int] = field(default_factory=list)
    over: tuple[int, str] | None = None
    ended: float = 0.0


def mean_of(feed, stay, step):
    """The mean of the signals from the first of a stay up to a step, without late ones."""
    mean, newest = None, float("-inf")
    for n, seen, leaves in feed:
        if not stay.held[0] <= n <= step:
            continue
        if stay.over is not None and n > stay.over[0]:
            newest = stay.ended
        if leaves is None and seen.rssi is not None and seen.at >= newest:
            mean = seen.rssi if mean is None else 0.7 * mean + 0.3 * seen.rssi
        if n in stay.held:
            newest = max(newest, seen.at)
    return mean


def events_of(  # noqa: C901  one look at all of the history
    history, marks, feed, place
):
    """The events at one place, from all of what a device reported there.

    Returns them and the steps at which a visit was begun or held.
    """
    at = {step: observation.at for step, observation, _ in feed}
    stays: list[Stay] = []
    gone = float("-inf")  # the latest report that ended a visit

    def is_silent(stay, step):
        return marks[step] > max(at[n] for n in stay.held) + stay.silence

    for step, seen, leaves in feed:
        stay = stays[-1] if stays and stays[-1].over is None else None
        if stay is not None and is_silent(stay, step):
            stay = None
        if leaves is not None:
            if stay is not None and seen.at >= max(at[n] for n in stay.held):
                stay.over, stay.ended = (step, leaves), seen.at
                gone = seen.at
            continue
        knows_signal = seen.rssi is not None and seen.weakest is not None
        if stay is None:
            last = stays[-1] if stays and stays[-1].over is not None else None
            is_near = seen.in_reach
            if knows_signal and last is not None and marks[step] <= last.ended + last.silence:
                mean = mean_of(feed, last, step)
                is_near = is_near and (mean is None or mean >= seen.weakest)
            if is_near and marks[step] <= seen.at + place.silence and seen.at > gone:
                stays.append(Stay(place.silence, [step]))
            continue
        mean = mean_of(feed, stay, step)
        if seen.in_reach:
            stay.held.append(step)
        elif knows_signal and mean is not None:
            if mean < seen.weakest - 6:
                gone = stay.ended = max(seen.at, *(at[n] for n in stay.held))
                stay.over = (step, "signal")
            else:
                stay.held.append(step)
    found: list[tuple[object, ...]] = []
    for stay in stays:
        entered = at[stay.held[0]]
        found.append((stay.held[0], "enter", 0, entered, entered, 1, None))
        for n in range(1, len(stay.held)):
            before = max(at[m] for m in stay.held[:n])
            last = max(before, at[stay.held[n]])
            found += [
                (stay.held[n], "dwell", minutes, entered, last, n + 1, None)
                for minutes in place.dwell_minutes
                if before - entered < 60 * minutes <= last - entered
            ]
        last = max(at[n] for n in stay.held)
        over = stay.over
        if over is None:
            silent = [n for n in range(len(history)) if marks[n] > last + stay.silence]
            over = (silent[0], "silence") if silent else None
        if over is not None:
            found.append((over[0], "exit", 0, entered, last, len(stay.held), over[1]))
    return found, {n for stay in stays for n in stay.held}


def oracle(history):
    marks, mark = [], float("-inf")
    for _, _, seen, _ in history:
        mark = max(mark, seen.until)
        marks.append(mark)
    found: dict[object, list[object]] = {}
    for visitor in VISITORS:
        at_venue = []
        for place in PLACES:
            feed = [
                (step, seen, leaves)
                for step, (who, where, seen, leaves) in enumerate(history)
                if who == visitor and where == place
            ]
            found[visitor, *place.where], held = events_of(history, marks, feed, place)
            at_venue += [
                (n, replace(seen, in_reach=True, rssi=None), None)
                for n, seen, _ in feed
                if n in held
            ]
        found[visitor, "venue", 1], _ = events_of(history, marks, sorted(at_venue), VENUE)
    return found


def followed(history, restart_at=()):
    """What the product finds, with its state written and read again at some steps."""
    book, ids = VisitBook(), []
    found: dict[object, list[object]] = {}
    for visitor in VISITORS:
        for place in (*PLACES, VENUE):
            found[visitor, *place.where] = []
    for step, (visitor, place, seen, leaves) in enumerate(history):
        if step in restart_at:
            again = VisitBook(book.mark)
            for key in VISITORS:
                state = msgspec.msgpack.encode(book.of(key))
                again.restore(key, msgspec.msgpack.decode(state, type=list[Visit]))
            assert again.open == book.open
            book = again
        if leaves is None:
            events = book.observe(visitor, (place, VENUE), seen)
        else:
            events = book.leave(visitor, place.where, seen, leaves)
        for each in events:
            visit = each.visit
            ids.append(each.id)
            found[each.visitor, visit.kind, visit.place_id].append(
                (
                    *(step, each.type, each.minutes, visit.entered_at, visit.last_seen),
                    *(visit.detections, each.cause),
                )
            )
    assert len(ids) == len(set(ids))
    return found


STEPS = [0, 1, 5, 10, 10, 10, 11, 35]
DELAYS = [0] * 9 + [-1, -5, -10, -20, -40, -60, 3, 45]
SIGNALS = [(None, False), (None, True)] + [(x, x > -70) for x in (-50.0, -72.0, -80.0, -99.0)] * 2
WHERE = PLACES + PLACES[:1] * 3
WHO = VISITORS + VISITORS[:1] * 3
LEAVES = [None] * 4 + ["reported"]
times = one_of_each(STEPS, DELAYS)
signals = one_of_each(SIGNALS, (WEAKEST, WEAKEST, None))
reports = one_of_each(WHO, WHERE, LEAVES)


@st.composite
def histories(draw):
    now, history = 1000.0, []
    for number in range(draw(st.integers(1, 40))):
        step, delay = draw(times)
        now += step
        at = now + delay
        (rssi, in_reach), weakest = draw(signals)
        record = Recorded("topic", 0, number)
        seen = Observation(at, min(at, now), record, 0, in_reach, rssi, weakest)
        visitor, place, leaves = draw(reports)
        history.append((visitor, place, seen, leaves))
    return history


@settings(max_examples=600, deadline=None)
@given(histories(), st.sets(st.integers(0, 40)))
def test_visits_are_those_of_the_whole_history(history, restart_at):
    expected = oracle(history)
    assert followed(history) == expected
    assert followed(history, restart_at) == expected


def seen(at, **fields):
    return Observation(at, at, Recorded("topic", 0, round(at)), **fields)


def test_nothing_is_kept_when_all_have_left():
    book = VisitBook()
    for number in range(50):
        book.observe((1, str(number)), (PLACES[0], VENUE), seen(100 + number / 10))
    book.observe((1, "0"), PLACES[:1], seen(106))
    assert (len(book), book.open) == (50, 100)
    ends = [each.visit.deadline for each in book.expire(1000)]
    assert ends == sorted(ends), "as if time had moved slowly"
    assert (len(book), book.open) == (0, 0)


def test_a_detection_that_is_older_than_the_end_of_a_visit_is_late():
    book, visitor = VisitBook(), (1, "a")
    book.observe(visitor, PLACES[:1], seen(100))
    book.expire(131)
    assert not book.observe(visitor, PLACES[:1], replace(seen(99), until=131))
    assert book.late == {"beacon": 1}
    assert len(book) == 0


DATA = files("engine.cli.demo").joinpath("data")


def test_visits_near_a_beacon_are_about_as_many_as_there_are() -> None:
    """By their true positions, the phones came within 4 m of a beacon 546 times."""
    books: dict[str, VisitBook] = defaultdict(VisitBook)
    weakest, entered = weakest_signal(Zone.NEAR, None, 2.0), 0
    text = gzip.decompress(DATA.joinpath("detections.csv.gz").read_bytes()).decode()
    for number, row in enumerate(csv.DictReader(text.splitlines())):
        at, beacon, rssi = float(row["seconds"]), int(row["beacon"]), float(row["rssi"])
        is_near, record = zone_from_rssi(rssi) <= Zone.NEAR, Recorded(row["walk"], 0, number)
        seen = Observation(at, at, record, 0, is_near, rssi, weakest)
        place = VisitPlace(("beacon", beacon), (beacon,), 30)
        events = books[row["walk"]].observe((1, "phone"), [place], seen)
        entered += sum(each.type == "enter" for each in events)
    assert 450 < entered <= 500
