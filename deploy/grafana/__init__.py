"""The Grafana dashboards: `python -m deploy.grafana` writes deploy/grafana/dashboards again."""
