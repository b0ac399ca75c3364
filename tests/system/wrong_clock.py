"""Processes whose wall clock is wrong, as on a host whose time service has failed."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.servers.missing import skipping
from tests.servers.process import find_program
from tests.system.rig import Command, Rig

# Between the program and the C library: the wall clock only, what measures durations stays right.
_SHIFT = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long shift(void) { const char *text = getenv("WRONG_BY"); return text ? atol(text) : 0; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    int is_wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    if (!result && is_wall) now->tv_sec += shift();
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    static int (*real)(struct timeval *, void *);
    if (!real) real = dlsym(RTLD_NEXT, "gettimeofday");
    int result = real(now, zone);
    if (!result) now->tv_sec += shift();
    return result;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""


class WrongClock:
    """The library to preload before the C library, built once per test."""

    def __init__(self, directory: Path) -> None:
        with skipping("a C compiler", instead="PATH"):
            compiler = find_program("cc", "gcc", package="gcc")
        source, self._library = directory / "wrong_clock.c", directory / "wrong_clock.so"
        source.write_text(_SHIFT)
        options = ["-shared", "-fPIC", "-O1", "-o", str(self._library), str(source), "-ldl"]
        command = [str(compiler), *options]
        subprocess.run(command, check=True, timeout=60)

    def recorder(self, rig: Rig, seconds: int) -> Command:
        """A recorder whose clock is so many seconds ahead."""
        return self.start(rig, seconds, "run", "--role", "recorder")

    def start(self, rig: Rig, seconds: int, *arguments: str) -> Command:
        """Any command whose clock is so many seconds ahead."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(os.environ, "LD_PRELOAD", str(self._library))
            patch.setitem(os.environ, "WRONG_BY", str(seconds))
            return rig.start(*arguments)
