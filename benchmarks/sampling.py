"""Samples the processor time of this process by SIGPROF; the main thread only."""

import json
import signal
from collections import Counter
from pathlib import Path
from types import FrameType

_SECONDS = 0.004
_DEPTH = 12


class Sampler:
    """Counts stacks of files, the innermost first."""

    def __init__(self) -> None:
        self._found: Counter[str] = Counter()

    def start(self) -> None:
        """Start sampling. Call it from the main thread."""
        signal.signal(signal.SIGPROF, self._note)
        signal.siginterrupt(signal.SIGPROF, False)
        signal.setitimer(signal.ITIMER_PROF, _SECONDS, _SECONDS)

    def stop(self, file: Path) -> None:
        """Stop sampling, and write the counts."""
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        file.write_text(json.dumps(self._found), encoding="utf-8")

    def _note(self, _signal: int, frame: FrameType | None) -> None:
        files: list[str] = []
        while frame is not None and len(files) < _DEPTH:
            file = frame.f_code.co_filename
            if not files or files[-1] != file:
                files.append(file)
            frame = frame.f_back
        self._found[";".join(files)] += 1
