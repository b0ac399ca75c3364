"""`python -m benchmarks.replay`: how fast recorded detections are decided again."""
