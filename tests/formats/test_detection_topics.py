"""The setting DETECTION_TOPICS, and what follows from it."""

import pytest

from engine.formats.decoders import detection_decoders
from engine.kafka.topics import Topics, detection_topics
from engine.process.errors import SettingsError
from engine.process.settings import DetectionTopic
from engine.process.settings_sources import load_settings


def test_topics_stand_beside_ours_in_the_order_of_the_setting():
    settings = load_settings(topic_prefix="p.", detection_topics=" b=own, a = cloudevents+own,")
    assert detection_topics(settings) == (
        DetectionTopic("p.detections"),
        DetectionTopic("b"),
        DetectionTopic("a", in_cloudevents=True),
    )
    assert Topics.of(settings).all()[:4] == ("p.detections", "b", "a", "p.authentications")
    assert list(detection_decoders(settings)) == ["p.detections", "b", "a"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a", "'a' is no topic with its format; accepted: topic=format"),
        ("a b=own", "no topic with its format"),
        (f"{'x' * 250}=own", "no topic with its format"),
        ("a=", "is no format; formats: own"),
        ("a=cloudevents", "in CloudEvents: cloudevents+<format>"),
        ("a=own,b=own,a=own", "a topic has two formats"),
        ("proximity.notifications=own", "proximity.notifications has other messages"),
    ],
)
def test_bad_values_are_named(value: str, expected: str):
    with pytest.raises(SettingsError) as caught:
        load_settings(detection_topics=value)
    assert "PROXIMITY_DETECTION_TOPICS" in str(caught.value)
    assert expected in str(caught.value)
