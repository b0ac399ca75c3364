"""A time as an option has it."""

import typer


def moment(option: str, written: str) -> float:
    """Epoch seconds. Raises BadParameter for what is no time."""
    from engine.kafka.timestamps import parse

    try:
        return parse(int(written) if written.isascii() and written.isdigit() else written)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
