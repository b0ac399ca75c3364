"""A catalog file: no forbidden url and no reserved parameter of a connector is accepted."""

import json

from tests.servers.proximity import Rig

METADATA = "http://169.254.169.254/latest/meta-data"


def test_a_catalog_leads_no_connector_inside(rig: Rig, sqlite_url: str) -> None:
    rig.settings = {"DATABASE_URL": sqlite_url, "SECRET_KEY": "a passphrase of some length"}
    assert rig("migrate").returncode == 0
    connector = {"name": "c", "url": METADATA, "method": "POST", "auth": "header"}
    listed = [{"key": "Host", "value": "geheim"}]
    companies = [
        {"name": "A", "connector": {**connector, "parameters": []}},
        {"name": "B", "connector": {**connector, "parameters": listed}},
    ]
    done = rig("catalog", "load", "-", given=json.dumps({"companies": companies}).encode())
    assert done.returncode == 1
    assert done.stderr.count("leads to an address that is not public") == 2
    assert "companies[1].connector.parameters" in done.stderr
    assert "Host" in done.stderr
    assert "geheim" not in done.stderr
    assert done.stderr.endswith("has 3 faults; nothing was changed\n")
