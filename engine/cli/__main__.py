"""`python -m engine.cli` is the command `proximity`."""

import gc
import importlib
import sys


def main() -> None:
    """Run the command line and exit."""
    try:
        # Objects made by imports stay, and searching them for garbage takes a fifth of the start.
        gc.disable()
        application = importlib.import_module("engine.cli.application")
        gc.freeze()
        gc.enable()
        sys.exit(application.run(sys.argv[1:]))
    except KeyboardInterrupt:  # while modules are imported, a second or more on a busy machine
        sys.stderr.write("proximity: interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
