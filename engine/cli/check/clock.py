"""The clock of a server beside this machine's: rules look at times that others wrote."""

from engine.cli.check.finding import Finding, bad, ok, warning

_NOTED = 1.0
_TOO_MUCH = 10.0


def check_clock(part: str, theirs: float, before: float, after: float) -> Finding:
    """`theirs` was read between `before` and `after` (epoch seconds)."""
    skew = theirs - min(max(theirs, before), after)
    told = f"{abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} this machine's"
    if abs(skew) <= _NOTED:
        return ok(part, "clock", "as this machine's")
    return (bad if abs(skew) > _TOO_MUCH else warning)(part, "clock", f"{told}: see to NTP")
