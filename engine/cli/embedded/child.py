"""A server process that cannot outlive the process that started it, not even after SIGKILL.

PR_SET_PDEATHSIG would need code between fork and exec (unsafe with threads), follows the thread and
not the process, and exists on Linux only. Instead the child holds the read end of a pipe whose only
write end is in this process. A small shell beside the server waits on the pipe and kills the server
when the pipe closes, which the kernel does however this process ends. A line that was written
before releases the server.
"""

import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

# The shell becomes the server (exec keeps its pid, $$); the watcher stays in the background.
_WATCHED = 'exec 3<&0 </dev/null; { read -r _ <&3 || kill -KILL $$; } & exec 3<&- "$@"'
_KILL_DEADLINE_SECONDS = 10.0


class ServerStartError(RuntimeError):
    """A server could not be started; the message says why, with the end of its own log."""


class ChildProcess:
    """One server process. Not thread safe; `stop` or `kill` must be called to reap it."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> None:
        """Start `command`; its output is appended to the file `log`.

        `env` is added to this process's environment; `user` (for root only) runs it as that user.
        Raises ServerStartError if the program cannot be run at all.
        """
        self.log = log
        with log.open("ab") as output:
            try:
                self._popen = subprocess.Popen(  # noqa: S603 - the callers name the programs
                    ["/bin/sh", "-c", _WATCHED, "sh", *map(str, command)],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=cwd,
                    env={**os.environ, **(env or {})},
                    # A Ctrl-C at the terminal is for this process, which stops the servers last.
                    start_new_session=True,
                    user=user,
                    group=user,
                    extra_groups=None if user is None else [],
                )
            except OSError as error:
                raise ServerStartError(f"cannot run {command[0]}: {error}") from error

    @property
    def pid(self) -> int:
        """The server's own process id."""
        return self._popen.pid

    @property
    def running(self) -> bool:
        """Whether the server is still running."""
        return self._popen.poll() is None

    def stop(self, *, stop_signal: signal.Signals = signal.SIGTERM, deadline: float = 5.0) -> None:
        """Ask the server to end, and kill it after `deadline` seconds. Safe to call twice."""
        if self.running:
            self._popen.send_signal(stop_signal)
        try:
            self._popen.wait(deadline)
        except subprocess.TimeoutExpired:
            self._popen.kill()
        self._reap()

    def kill(self) -> None:
        """End the server at once with SIGKILL. Safe to call twice."""
        self._popen.kill()
        self._reap()

    def log_tail(self, lines: int = 10) -> str:
        """The last lines of its output, for an error message."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _reap(self) -> None:
        self._popen.wait(_KILL_DEADLINE_SECONDS)
        pipe = self._popen.stdin
        if pipe is None or pipe.closed:
            return
        try:
            pipe.write(b"\n")
            pipe.close()
        except BrokenPipeError:
            # The watcher has ended already, so there is no one to release.
            pass


def free_port() -> int:
    """A TCP port on 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
