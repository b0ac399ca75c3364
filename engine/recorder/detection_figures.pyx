# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Adds up the figures of days and of the last minutes, of detections that count."""

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.math cimport fabs

from engine.recorder.day_rule cimport Rule, credible
from engine.recorder.detection_batch cimport Entry
from engine.recorder.detection_counts cimport Counted, Device

from engine.recorder.aggregate import Statistics
from engine.recorder.local_days import local_day_around
from engine.recorder.rows import BEACON, VENUE, FigureIncrements, StatisticKey
from engine.redis.recent_detections import MINUTES, BeaconMinute

cdef enum:
    _NO_GROUP = -1

cdef int _MINUTES = MINUTES


# The group of a place for detections from `since` up to, not including, `until`.
cdef struct _Today:
    double since
    double until
    int group


def figures_of(Counted counted, double now):
    """The statistics, and the detections by beacon and minute; as CountedDetections has them."""
    cdef _Figures figures = _Figures(counted, now)
    return figures.statistics(), figures.recent()


cdef class _Figures:
    """A group is the detections of a day at a place. Detections of test devices are in none."""

    cdef Counted counted
    cdef Rule rule
    cdef Py_ssize_t size
    cdef int *group_of  # by entry
    cdef int *ordered  # the entries of the groups, group by group
    cdef int *ends  # by group, in `ordered`; there are at most as many groups as entries
    cdef _Today *today  # by place
    cdef list groups  # (day, position of the place)
    cdef dict numbers  # of the groups
    cdef dict days  # the last LocalDay of each time zone

    def __cinit__(self, Counted counted, double now):
        self.counted, self.size = counted, counted.batch.size
        self.rule = Rule(counted.rule.max_age, counted.rule.retention, now)
        self.groups, self.numbers, self.days = [], {}, {}
        self.group_of = <int *>PyMem_Calloc(self.size + 1, sizeof(int))
        self.ordered = <int *>PyMem_Calloc(self.size + 1, sizeof(int))
        self.ends = <int *>PyMem_Calloc(self.size + 2, sizeof(int))
        self.today = <_Today *>PyMem_Calloc(len(counted.places) + 1, sizeof(_Today))
        if not self.group_of or not self.ordered or not self.ends or not self.today:
            raise MemoryError
        self._assign()
        self._sort()

    def __dealloc__(self):
        PyMem_Free(self.group_of)
        PyMem_Free(self.ordered)
        PyMem_Free(self.ends)
        PyMem_Free(self.today)

    cdef int _assign(self) except -1:
        cdef Py_ssize_t i
        cdef int device
        cdef Entry *entry
        cdef double arrived_at
        for i in range(self.size):
            self.group_of[i] = _NO_GROUP
            device = self.counted.device_of[i]
            if device < 0 or self.counted.devices[device].is_test:
                continue
            entry = &self.counted.batch.entries[i]
            arrived_at = credible(&self.rule, entry.arrived_at)
            if fabs(entry.detected_at - arrived_at) <= self.rule.max_age:
                self.group_of[i] = self._fresh(self.counted.place_of[entry.beacon], entry)
            else:
                self.group_of[i] = self._late(self.counted.place_of[entry.beacon], entry)
        return 0

    cdef int _fresh(self, int place, Entry *entry) except -2:
        cdef _Today *today = &self.today[place]
        if not today.since <= entry.detected_at < today.until:
            zone = self.counted.places[place].time_zone
            found = self.days.get(zone)
            if found is None or not found.since <= entry.detected_at < found.until:
                self.days[zone] = found = local_day_around(entry.detected_at, zone)
            today.since, today.until = found.since, found.until
            today.group = self._group(found.day, place)
        return today.group

    cdef int _late(self, int place, Entry *entry) except -2:
        zone = self.counted.places[place].time_zone
        day = self.counted.rule.day_of(
            entry.detected_at, entry.arrived_at, self.rule.now, zone
        )
        return _NO_GROUP if day is None else self._group(day, place)

    cdef int _group(self, day, int place) except -2:
        found = self.numbers.get((day, place))
        if found is None:
            self.numbers[day, place] = found = len(self.groups)
            self.groups.append((day, place))
        return found

    cdef int _sort(self) except -1:
        """Counting sort. `ends` are the sizes first, then the begins, at last the ends."""
        cdef Py_ssize_t i
        cdef int group, groups = len(self.groups)
        for i in range(self.size):
            if self.group_of[i] >= 0:
                self.ends[self.group_of[i] + 1] += 1
        for group in range(groups):
            self.ends[group + 1] += self.ends[group]
        for i in range(self.size):
            group = self.group_of[i]
            if group >= 0:
                self.ordered[self.ends[group]] = i
                self.ends[group] += 1
        return 0

    cdef int _begin(self, int group) noexcept:
        return self.ends[group - 1] if group else 0

    def statistics(self):
        statistics = Statistics()
        cdef dict venues = {}
        cdef int number, mark = 0
        for number in range(self.counted.device_count):
            self.counted.devices[number].marked = _NO_GROUP
        for number in range(len(self.groups)):
            day, place = self.groups[number]
            beacon = self.counted.places[place]
            venue = StatisticKey(day, VENUE, beacon.venue_id)
            venues.setdefault(venue, []).append(number)
            self._add(statistics, StatisticKey(day, BEACON, beacon.beacon_id), [number], mark)
            mark += 1
        for venue, numbers in venues.items():
            self._add(statistics, venue, numbers, mark)
            mark += 1
        return statistics

    cdef _add(self, statistics, key, list groups, int mark):
        """Count the detections of the groups, and their devices once, under the key."""
        cdef list known = [], new = []
        cdef Device *device
        cdef int number, at, detections = 0
        for number in groups:
            detections += self.ends[number] - self._begin(number)
            for at in range(self._begin(number), self.ends[number]):
                device = &self.counted.devices[self.counted.device_of[self.ordered[at]]]
                if device.marked != mark:
                    device.marked = mark
                    (new if device.is_new else known).append(device.id)
        _, place = self.groups[groups[0]]
        statistics.figures[key] = FigureIncrements(self.counted.places[place].venue_id, detections)
        statistics.devices[key] = set(known)
        if new:
            statistics.new_devices[key] = new

    def recent(self):
        cdef object now = self.rule.now
        cdef double end = now // 60 * 60 + 60
        cdef double begin = end - 60 * _MINUTES
        cdef Entry *entry
        cdef Py_ssize_t i
        cdef int device, minute, place
        cdef int *counts = <int *>PyMem_Calloc(len(self.counted.places) * _MINUTES + 1, sizeof(int))
        if not counts:
            raise MemoryError
        try:
            for i in range(self.size):
                device = self.counted.device_of[i]
                entry = &self.counted.batch.entries[i]
                if device < 0 or self.counted.devices[device].is_test:
                    continue
                if begin <= entry.detected_at < end:
                    minute = min(<int>((entry.detected_at - begin) / 60), _MINUTES - 1)
                    counts[self.counted.place_of[entry.beacon] * _MINUTES + minute] += 1
            found = {}
            for place in range(len(self.counted.places)):
                beacon = self.counted.places[place]
                for minute in range(_MINUTES):
                    if counts[place * _MINUTES + minute]:
                        key = BeaconMinute(
                            beacon.venue_id, beacon.beacon_id, <long long>(begin / 60) + minute
                        )
                        found[key] = counts[place * _MINUTES + minute]
            return found
        finally:
            PyMem_Free(counts)
