"""Load on any cluster, open loop: `python -m benchmarks.load`. See ../README.md."""
