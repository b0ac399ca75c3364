"""The garbage collector, set for a stream of short-lived records without cycles."""

import gc

_YOUNG = 50_000  # allocations between looks at the young; the default of 700 is one in 150 records
_OLDER = 20


def settle_garbage_collector() -> None:
    """Call once everything is imported: what stands now is never looked at again, and the rest
    seldom. Records hold no cycles, so reference counts free them without the collector."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _OLDER, _OLDER)
