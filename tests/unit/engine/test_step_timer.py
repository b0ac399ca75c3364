"""The times of steps in the metrics."""

import pytest

from engine.process.metrics import Metrics, StepTimer


def sample(metrics: Metrics, name: str, step: str) -> float | None:
    labels = {"role": "trigger", "step": step}
    return metrics.registry.get_sample_value(f"proximity_batch_seconds_{name}", labels)


def test_a_step_is_timed_and_one_that_raises_is_not_counted() -> None:
    metrics, times = Metrics(), iter([1.0, 1.5, 10.0, 11.0, 20.0])
    step = StepTimer(metrics, "trigger", lambda: next(times))
    with step("decide"), pytest.raises(ValueError, match="x"), step("claim"):
        raise ValueError("x")
    with step("decide"):
        pass
    assert sample(metrics, "count", "claim") in (None, 0)
    assert sample(metrics, "count", "decide") == 2
    assert sample(metrics, "sum", "decide") == pytest.approx((10.0 - 1.0) + (20.0 - 11.0))
