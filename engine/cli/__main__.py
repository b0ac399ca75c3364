"""`python -m engine.cli` is the command `proximity`."""

import gc
import importlib


def main() -> None:
    """Run the command line and exit."""
    # What an import makes stays: to look for garbage in it takes a fifth of the time to start.
    gc.disable()
    application = importlib.import_module("engine.cli.application")
    gc.freeze()
    gc.enable()
    application.main()


if __name__ == "__main__":
    main()
