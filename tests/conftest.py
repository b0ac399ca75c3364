"""What every test may ask for: see tests/servers/fixtures.py."""

pytest_plugins = ["tests.servers.handles", "tests.servers.fixtures"]
