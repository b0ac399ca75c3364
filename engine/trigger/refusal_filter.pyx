# cython: language_level=3, boundscheck=False, wraparound=False
"""Finds detections that fire nothing, in the JSON of their records.

Nearly all detections of a busy topic fire nothing: their device was sent the campaign already, is
too far away, or there is no campaign. This module finds that out without decoding them, and makes
no object of a detection. It comes to the same decisions as detections.py, `decider` (grants.py)
and `decide` (rules/decision.py), which tests/property/test_refusal_filter.py compares. What it
cannot decide for certain it leaves to them.

Cython compiles it while the project is installed. Without a compiler the trigger does without it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject

from engine.kafka.detection_scan cimport DetectionText, Text, scan_detection
from engine.kafka.detection_values cimport (
    UNREADABLE_ZONE, DetectionClock, text_of, triple_of, zone_of
)

from engine.kafka.detection_values import key_of
from rules.decision import UNKNOWN_BEACON
from rules.model import Zone

cdef enum:
    _LONGEST_UDID = 255
    _MOST_PLACES = 65_536
    _EVERY_ZONE = -1  # a reach

cdef int _UNKNOWN = Zone.UNKNOWN


cdef class _Place:
    """A beacon as the rules see it; `target` is None for a triple that is no beacon.

    `written` has its triples, as devices write them.
    """

    cdef object target, refusal, refusals, phase, none_granted
    cdef tuple caps
    cdef list written
    cdef int reach
    cdef double since, until

    cdef _enter(self, phase):
        self.phase, self.caps, self.none_granted = phase, phase.caps, phase.none_granted
        self.since, self.until = phase.since, phase.until

    cdef bint _all_throttled(self, dict claims, double at) except -1:
        """Whether the claims deny every open campaign to a detection at this time."""
        cdef PyObject *held
        cdef double since, delay
        cdef tuple cap
        for cap in self.caps:
            number, delay = cap[0], cap[1]
            held = PyDict_GetItem(claims, number)
            if held != NULL and at < <double><object>held + delay:
                continue
            # A claim that was only read (claim_memory.py).
            held = PyDict_GetItem(claims, -number)
            if held == NULL or cap[2].format == "connector":
                return False
            since = <double><object>held
            if not since < at < since + delay:
                return False
        return True


cdef class RefusalFilter:
    """Refuses detections for one process.

    `max_age` in seconds and `path_loss_exponent` are those of the settings.
    """

    # By the triple as written, and by its key. Many triples may be one beacon's.
    cdef dict _places, _by_key, _known
    cdef double _max_age, _path_loss_exponent
    cdef DetectionClock _clock

    def __init__(self, cache, double max_age, double path_loss_exponent):
        self._places, self._by_key, self._known = {}, {}, cache.known
        cache.on_removal = self._forget
        self._max_age = max_age
        self._path_loss_exponent = path_loss_exponent
        self._clock = DetectionClock()

    def split(self, list records, remembered, double now):
        """The records that must be decoded, and the decisions that refuse the others."""
        cdef list others = [], refused = []
        cdef dict claims
        cdef double oldest = now - self._max_age, newest = now + self._max_age
        remembered.forget_expired(now)
        if len(self._places) > _MOST_PLACES:
            self._places.clear()
            self._by_key.clear()
        claims = remembered.young
        for record in records:
            decision = self._refusal(record, claims, oldest, newest)
            if decision is None:
                others.append(record)
            else:
                refused.append(decision)
        return others, refused

    cdef object _refusal(self, record, dict claims, double oldest, double newest):
        """The decision that refuses the record's detection, or None.

        The checks and their order are those of `decide`.
        """
        cdef DetectionText text
        cdef _Place place
        cdef double at
        cdef int zone
        value = record.value
        if type(value) is not bytes:
            return None
        if not scan_detection(PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value), &text):
            return None
        zone = zone_of(&text, self._path_loss_exponent)
        at = record.timestamp / 1000 if text.detected_at.size < 0 else 0
        at = self._clock.detected_at(&text, at)
        place = self._place(&text)
        if place is None or zone == UNREADABLE_ZONE or at < 0:
            return None
        if text.udid.size > _LONGEST_UDID:
            return None
        if place.target is None:
            return UNKNOWN_BEACON
        if place.refusal is not None:
            return place.refusal
        if place.reach != _EVERY_ZONE:
            if zone == _UNKNOWN:
                return place.refusals.unknown_proximity
            if zone > place.reach:
                return place.refusals.too_far
        if at < oldest:
            return place.refusals.stale
        if at > newest:
            return place.refusals.future
        return self._throttled(place, claims, &text.udid, at)

    cdef object _throttled(self, _Place place, dict claims, Text *udid, double at):
        cdef PyObject *found
        phase = place.target.current
        if place.phase is not phase:
            place._enter(phase)
        if not place.since <= at < place.until:
            return None
        if not place.caps:
            return place.none_granted
        found = PyDict_GetItem(claims, text_of(udid))
        if found != NULL and place._all_throttled(<dict>found, at):
            return place.none_granted
        return None

    cdef _Place _place(self, DetectionText *text):
        cdef PyObject *found
        written = triple_of(text)
        if written is None:
            return None
        found = PyDict_GetItem(self._places, written)
        return self._found_place(written) if found == NULL else <_Place>found

    cdef _Place _found_place(self, bytes written):
        """The place of a triple that was not met before; None if the index must be asked."""
        cdef PyObject *found
        cdef _Place place
        key = key_of(written)
        if key is None or key not in self._known:
            return None
        found = PyDict_GetItem(self._by_key, key)
        place = self._new_place(key) if found == NULL else <_Place>found
        place.written.append(written)
        self._places[written] = place
        return place

    cdef _Place _new_place(self, key):
        cdef _Place place = _Place.__new__(_Place)
        beacon = self._known[key]
        place.written = []
        if beacon is not None:
            place.target = target = beacon.target
            place.refusal, place.refusals = target.refusal, target.refusals
            place.reach = _EVERY_ZONE if target.reach is None else target.reach
        self._by_key[key] = place
        return place

    def _forget(self, key):
        """The cache has removed a beacon: keep nothing of it."""
        cdef _Place place = self._by_key.pop(key, None)
        if place is not None:
            for written in place.written:
                del self._places[written]
