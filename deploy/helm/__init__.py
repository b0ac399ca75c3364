"""The chart's schema of values: `python -m deploy.helm` writes values.schema.json again."""
