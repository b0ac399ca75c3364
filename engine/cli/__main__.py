"""`python -m engine.cli` is the command `proximity`."""

from engine.cli.application import main

main()
