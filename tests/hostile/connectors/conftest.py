"""The rig of the acceptance tests, and the topics as the group of the connector role sees them."""

from tests.acceptance.conftest import rig, topics
from tests.acceptance.connectors.conftest import call_topics

__all__ = ["call_topics", "rig", "topics"]
