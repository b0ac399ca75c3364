"""Reads the time in an option."""

import typer


def moment(option: str, written: str) -> float:
    """The time in epoch seconds. Raises BadParameter for an invalid one."""
    from engine.kafka.timestamps import parse

    try:
        return parse(int(written) if written.isascii() and written.isdigit() else written)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
