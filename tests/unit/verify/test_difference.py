"""SQL held against the recount."""

import pytest

from engine.cli.verify.difference import Comparison, Difference, RecordedDevice
from engine.cli.verify.recount import Recount, count_all
from tests.unit.verify.records import received, recount, sent, signed_in

RIGHT = RecordedDevice(
    id=7,
    company_id=1,
    udid="a",
    nb_beacon=2,
    nb_campaign=1,
    traces=2,
    receptions=1,
    authentications=1,
)


@pytest.fixture
def counted() -> Recount:
    counting = recount()
    count_all(
        [received(), received(), received(minor=3), received(minor=9)], counting.add_detection
    )
    count_all([sent(1)], counting.add_notification)
    count_all([signed_in(), signed_in("off")], counting.add_authentication)
    return counting


def test_no_difference(counted: Recount) -> None:
    comparison = Comparison(counted)
    assert [*comparison.differences(RIGHT), *comparison.missing()] == []


@pytest.mark.parametrize(
    ("field", "figure", "sql", "may_be_edit"),
    [
        ("nb_beacon", "nb_beacon", 1, False),
        ("nb_beacon", "nb_beacon", 4, True),
        ("nb_beacon", "nb_beacon", 5, False),
        ("nb_campaign", "nb_campaign", 0, False),
        ("nb_campaign", "nb_campaign", 2, False),
        ("traces", "detection_trace", 3, True),
        ("receptions", "reception", 2, False),
        ("authentications", "authentication_trace", 2, True),
        ("authentications", "authentication_trace", 3, False),
    ],
)
def test_each_figure_is_compared(
    counted: Recount, field: str, figure: str, sql: int, may_be_edit: bool
) -> None:
    right = getattr(RIGHT, field)
    wrong = RecordedDevice(**(RIGHT._asdict() | {field: sql}))
    (found,) = Comparison(counted).differences(wrong)
    assert found == Difference(
        company_id=1,
        device_id=7,
        udid="a",
        figure=figure,
        topics=right,
        sql=sql,
        may_be_edit=may_be_edit,
    )


def test_traces_may_be_left_out(counted: Recount) -> None:
    assert list(Comparison(counted).differences(RIGHT._replace(traces=None))) == []


def test_a_device_that_sql_lacks(counted: Recount) -> None:
    missing = list(Comparison(counted).missing())
    assert {(each.figure, each.topics, each.sql, each.device_id) for each in missing} == {
        ("nb_beacon", 2, 0, None),
        ("nb_campaign", 1, 0, None),
        ("detection_trace", 2, 0, None),
        ("reception", 1, 0, None),
        ("authentication_trace", 1, 0, None),
    }


def test_a_device_that_the_topics_never_name(counted: Recount) -> None:
    found = list(Comparison(counted).differences(RIGHT._replace(udid="b")))
    assert {(each.figure, each.topics) for each in found} == {
        ("nb_beacon", 0),
        ("nb_campaign", 0),
        ("detection_trace", 0),
        ("reception", 0),
        ("authentication_trace", 0),
    }


@pytest.mark.parametrize(
    ("written", "figures"),
    [
        (RIGHT._replace(nb_beacon=9, nb_campaign=9), ["nb_campaign"]),
        (RIGHT._replace(nb_beacon=1), ["nb_beacon"]),
    ],
)
def test_where_the_beginning_is_deleted_sql_may_have_more(
    counted: Recount, written: RecordedDevice, figures: list[str]
) -> None:
    comparison = Comparison(counted, partial={"nb_beacon"})
    assert [each.figure for each in comparison.differences(written)] == figures


@pytest.mark.parametrize(
    ("company", "sql", "may_be_edit"), [(1, 2, True), (1, 3, False), (2, 0, True), (2, 1, True)]
)
def test_a_beacon_that_was_another_companys_before(
    company: int, sql: int, may_be_edit: bool
) -> None:
    """Of its two detections each may have counted for either of them, or for nobody."""
    counting = recount()
    count_all([received(minor=4), received(minor=4)], counting.add_detection)
    nothing = RIGHT._replace(nb_campaign=0, receptions=0, authentications=0, traces=None)
    found = list(
        Comparison(counting).differences(nothing._replace(company_id=company, nb_beacon=sql))
    )
    assert [(each.sql, each.may_be_edit) for each in found] == [(sql, may_be_edit)]
