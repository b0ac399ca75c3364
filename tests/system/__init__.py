"""Whole processes on real servers."""

import pytest

pytest.register_assert_rewrite("tests.system.scene")
