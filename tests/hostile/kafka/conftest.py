"""Whole processes on real servers, as in tests/acceptance."""

from tests.acceptance.conftest import rig, topics

__all__ = ["rig", "topics"]
