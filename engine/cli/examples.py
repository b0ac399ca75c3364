"""Lines to paste, at the end of a command's help."""


def examples(*lines: str) -> str:
    """What a command is registered with as its epilog: each line stays as it is."""
    return "\n".join(("\b", "Examples:", *(f"  proximity {line}" for line in lines)))
