"""The processor of detections and its command line."""

from importlib.metadata import version


def engine_version() -> str:
    """The installed version of the product."""
    return version("proximity-engine")
