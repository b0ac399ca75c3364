"""The acceptance tests' rig: real commands on real servers."""

from tests.acceptance.conftest import rig, topics

__all__ = ["rig", "topics"]
