"""Load tests: `python -m benchmarks`. See README.md in this folder."""
