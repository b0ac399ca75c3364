"""The setting DETECTION_TOPICS, and what follows from it."""

from engine.formats.decoders import detection_decoders
from engine.kafka.topics import Topics, detection_topics
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
