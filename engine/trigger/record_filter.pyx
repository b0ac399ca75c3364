# cython: language_level=3, boundscheck=False, wraparound=False
"""Decides detections by the JSON of their records, most of which fire nothing.

Nearly all detections of a busy topic fire nothing: their device was sent the campaign already, is
too far away, or there is no campaign. This module finds that out without decoding them, and makes
no object of a detection; of one that fires all campaigns that are open it makes the decided
detection. It comes to the same decisions as detections.py, locate.py and
`decide_from_memory` (grants.py), which tests/trigger/test_record_filter.py compares. What it
cannot decide for certain it leaves to them. Where visits are followed, it says what was detected.

Cython compiles it while the project is installed. Without a compiler the trigger does without it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.math cimport isnan, pow
from libc.string cimport memcpy

import msgspec

from engine.trigger.detection_scan cimport (
    BEACON,
    GEOFENCE,
    POSITION,
    TAG,
    DetectionText,
    Text,
    number_of,
    scan_detection,
)

from catalog.index.entries import application_field, geofences_field, rules_field
from engine.kafka.detections import GeofenceKey, TagKey, beacon_key
from engine.kafka.messages import EARLIEST_MS, LATEST_MS, ReceivedDevice, parse_text
from engine.redis.claims import pack_caps
from engine.trigger.claim_memory import capped_key, claim_key
from engine.trigger.grants import DecidedDetection, unknown
from rules.decision import refusal
from rules.model import Reason, Zone
from rules.parsing import DEFAULT_TX_POWER, IMMEDIATE_BELOW, NEAR_UP_TO, USUAL_NAMES
from rules.visits import Observation, weakest_signal

cdef extern from "Python.h":
    object PyUnicode_New(Py_ssize_t size, Py_UCS4 largest)
    void *PyUnicode_DATA(object text)

cdef enum:
    _MOST_PLACES = 65_536
    _EVERY_ZONE = -1  # a reach
    _LONGEST_UUID = 36
    _MOST_DIGITS = 5
    _LONGEST_TRIPLE = 49  # of uuid, major and minor, each with a NUL
    _UNREADABLE_ZONE = -2
    # The numbers of rules.model.Zone.
    _UNKNOWN = 0
    _IMMEDIATE = 1
    _NEAR = 2
    _FAR = 3

cdef double _DEFAULT_TX_POWER = DEFAULT_TX_POWER
cdef double _IMMEDIATE_BELOW = IMMEDIATE_BELOW
cdef double _NEAR_UP_TO = NEAR_UP_TO
cdef long long _LATEST_MS = LATEST_MS
cdef double _EARLIEST_MS = EARLIEST_MS
cdef double _UNREADABLE = -1.0  # a time before 1970 is left to the decoder, too
cdef tuple _ZONES = tuple(sorted(Zone))
_decode_device = msgspec.json.Decoder(ReceivedDevice).decode


cdef class _Place:
    """A place as the rules see it; `written` has a beacon's triples, as devices write them, and
    `visited` has what `company` follows visits at, None if nothing. `claimed` has the keys of the
    claims on the open campaigns (claim_memory.py), `delays` those campaigns' delays."""

    cdef object key, indexed, target, refusal, refusals, visited, company
    cdef object none_granted, all_granted, capped
    cdef tuple claimed, delays
    cdef bint has_quiet_hours, tracks_visits
    cdef list written
    cdef int reach
    cdef double since, until

    cdef _enter(self, phase):
        self.since, self.until = phase.since, phase.until
        self.none_granted, self.all_granted = phase.none_granted, phase.all_granted
        self.claimed = tuple([claim_key(campaign) for _, _, campaign in phase.delays])
        self.delays = tuple([delay for _, delay, _ in phase.delays])

    cdef object _by_claims(self, dict claims, double at):
        """The decision at this time: if the claims throttle all open campaigns, or say nothing of
        any; else None."""
        cdef double since, delay
        cdef bint any_known = False, all_throttled = True
        cdef Py_ssize_t i
        for i in range(len(self.claimed)):
            held = claims.get(self.claimed[i])
            if held is None:
                all_throttled = False
                continue
            any_known = True
            since, delay = held, self.delays[i]
            if not since < at < since + delay:
                all_throttled = False
        if all_throttled:
            return self.none_granted
        return None if any_known or self.capped in claims else self.all_granted


cdef class RecordFilter:
    """Decides detections for one process.

    `max_age` in seconds and `path_loss_exponent` are those of the settings.
    """

    # Beacons by the triple as written, and places by key. Many triples may be one beacon's.
    cdef dict _places, _by_key, _known, _claims
    cdef double _max_age, _path_loss_exponent, _now, _oldest, _newest
    cdef object _partition, _version
    cdef object _time_written  # of the last detection; the next record often has the same
    cdef double _time

    def __init__(self, cache, double max_age, double path_loss_exponent):
        self._places, self._by_key, self._known = {}, {}, cache.known
        cache.on_removal = self._forget
        self._max_age = max_age
        self._path_loss_exponent = path_loss_exponent

    def split(self, list records, partition, version, double now):
        """The records that must be decoded; and of the others the decisions that refuse them, those
        that may fire, decided for the partition at this `version` of the cache, and what visits
        need."""
        cdef list others = [], refused = [], granted = [], sightings = []
        remembered = partition.remembered
        remembered.forget_expired(now)
        self._partition, self._version = partition, version
        if len(self._places) > _MOST_PLACES:
            self._places.clear()
            self._by_key.clear()
        self._claims = remembered.by_device
        self._now = now
        self._oldest, self._newest = now - self._max_age, now + self._max_age
        for record in records:
            count = len(refused)
            if not self._decide(record, refused, granted, sightings):
                del refused[count:]
                others.append(record)
        return others, (refused, granted, sightings)

    cdef bint _decide(self, record, list refused, list granted, list sightings) except -1:
        """Add the decisions that refuse the record's detections, or the one that fires. False if
        it must be decoded."""
        cdef DetectionText text
        cdef double at
        cdef int zone = _UNKNOWN
        cdef _Place place
        value = record.value
        if type(value) is not bytes:
            return False
        if not scan_detection(PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value), &text):
            return False
        at = record.timestamp / 1000 if text.detected_at.size < 0 else 0
        at = self._detected_at(&text, at)
        if text.place == BEACON:
            zone = _zone_of(&text, self._path_loss_exponent)
            places = (self._beacon(&text),)
        else:
            places = self._others(&text, at)
        if at < 0 or zone == _UNREADABLE_ZONE:
            return False
        udid = _text_of(&text.udid)
        for place in places:
            if place is None or (place.tracks_visits and text.place == POSITION):
                return False  # a position may end visits at other places
            decision = self._decision(place, zone, at, udid)
            if decision is None:
                return False
            if decision is not place.all_granted:
                refused.append(decision)
            elif text.place == POSITION:  # what one geofence fires, another one does not
                return False
            else:
                granted.append(self._granted(record, place, zone, at, &text, decision))
            if place.visited is not None:
                sighting = self._sighting(record, place, zone, at, udid, &text)
                if sighting is not None:
                    sightings.append(sighting)
        return True

    cdef _granted(
        self, record, _Place place, int zone, double at, DetectionText *text, decision
    ):
        """The detection, which fires all open campaigns."""
        device = _decode_device(PyBytes_FromStringAndSize(text.device.at, text.device.size))
        return DecidedDetection(
            record,
            device,
            place.key,
            _ZONES[zone],
            at,
            place.indexed,
            decision,
            self._partition,
            self._version,
        )

    cdef _sighting(self, record, _Place place, int zone, double at, udid, DetectionText *text):
        """The detection as visits see it; None for one from the future, which counts for none."""
        cdef double arrived = record.timestamp / 1000
        cdef bint in_reach = place.reach == _EVERY_ZONE or _UNKNOWN < zone <= place.reach
        if arrived <= 0:
            arrived = self._now
        if at > arrived + self._max_age:
            return None
        rssi = weakest = None
        if place.reach != _EVERY_ZONE and text.rssi.size >= 0 and number_of(&text.rssi) < 0:
            rssi = number_of(&text.rssi)
            power = number_of(&text.tx_power) if text.tx_power.size >= 0 else None
            weakest = weakest_signal(place.target.reach, power, self._path_loss_exponent)
        until = at if at < arrived else arrived
        observation = Observation(at, until, record, 0, in_reach, rssi, weakest)
        return observation, (place.company, udid), place.visited, record

    cdef double _detected_at(self, DetectionText *text, double arrived_at) except? -2.0:
        """Epoch seconds, below 0 if the decoder must read it; without a time `arrived_at`."""
        cdef double milliseconds
        if text.detected_at.size < 0:
            return arrived_at if arrived_at >= 0 else _UNREADABLE
        if text.detected_at_is_number:
            milliseconds = number_of(&text.detected_at)
            if milliseconds < _EARLIEST_MS or milliseconds > _LATEST_MS:
                return _UNREADABLE
            return milliseconds / 1000
        written = _text_of(&text.detected_at)
        if written != self._time_written:
            try:
                self._time = parse_text(written)
            except ValueError:
                return _UNREADABLE
            self._time_written = written
        return self._time if self._time >= 0 else _UNREADABLE

    cdef object _decision(self, _Place place, int zone, double at, udid):
        """The decision that refuses a detection or grants all open campaigns, or None.

        The checks and their order are those of `decide`.
        """
        if place.refusal is not None:
            return place.refusal
        if place.reach != _EVERY_ZONE:
            if zone == _UNKNOWN:
                return place.refusals.unknown_proximity
            if zone > place.reach:
                return place.refusals.too_far
        if at < self._oldest:
            return place.refusals.stale
        if at > self._newest:
            return place.refusals.future
        return self._in_phase(place, udid, at)

    cdef object _in_phase(self, _Place place, udid, double at):
        if not place.since <= at < place.until:
            place._enter(place.target.current)
            if not place.since <= at < place.until:
                return None
        if not place.delays:
            return place.none_granted
        if place.has_quiet_hours:  # the device's time zone decides
            return None
        claims = self._claims.get(udid)
        return place.all_granted if claims is None else place._by_claims(<dict>claims, at)

    cdef object _others(self, DetectionText *text, double at):
        """The places of a detection at no beacon; None for one of which the index must be asked."""
        if text.place == GEOFENCE:
            return (self._geofence(<long long>number_of(&text.id)),)
        application = self._known.get(application_field(_text_of(&text.api_key)))
        if application is None or not application.admits(at):
            return (None,)
        company = application.company_id
        if text.place == TAG:
            return (self._place(TagKey(company, _text_of(&text.kind), _text_of(&text.value))),)
        grid = self._known.get(geofences_field(company))
        if grid is None:
            return (None,)
        inside = grid.containing(text.latitude, text.longitude)
        accuracy = None if isnan(text.accuracy) else text.accuracy
        places = [self._geofence(each.id) for each in inside if each.admits(accuracy)]
        return places or (self._nowhere(company, Reason.INACCURATE if inside else Reason.OUTSIDE),)

    cdef _Place _nowhere(self, company, reason):
        """None if the position may end a visit."""
        cdef _Place place = _Place.__new__(_Place)
        rules = self._known.get(rules_field(company), self)
        if rules is self or (rules is not None and rules.tracks_visits):
            return None
        place.refusal = refusal(reason, company)
        return place

    cdef _Place _beacon(self, DetectionText *text):
        cdef _Place place
        written = _triple_of(text)
        if written is None:
            return None
        place = <_Place>self._places.get(written)
        if place is not None:
            return place
        key = _key_of(written)
        place = None if key is None else self._place(key)
        if place is not None:
            place.written.append(written)
            self._places[written] = place
        return place

    cdef _Place _geofence(self, number):
        place = self._by_key.get((number,))  # equal to the key
        return <_Place>place if place is not None else self._place(GeofenceKey(number))

    cdef _Place _place(self, key):
        """The place with this key; None if the index must be asked."""
        cdef _Place place = <_Place>self._by_key.get(key)
        if place is not None:
            return place
        if key not in self._known:
            return None
        indexed = self._known[key]
        place = self._by_key[key] = _Place.__new__(_Place)
        place.written, place.key, place.indexed = [], key, indexed
        if indexed is None:
            place.refusal = unknown(key)
        else:
            place.visited, place.company = indexed.visited or None, indexed.company_reference.id
            place.target = target = indexed.target
            place.refusal, place.refusals = target.refusal, target.refusals
            place.has_quiet_hours = target.rules.quiet_hours is not None
            place.tracks_visits = target.rules.tracks_visits
            place.capped = capped_key(pack_caps(place.company, target.rules.caps))
            place.reach = _EVERY_ZONE if target.reach is None else target.reach
        return place

    def _forget(self, key):
        """The cache has removed a beacon: keep nothing of it."""
        cdef _Place place = self._by_key.pop(key, None)
        if place is not None:
            for written in place.written:
                del self._places[written]


cdef object _text_of(Text *text):
    """The text as str; it is ASCII."""
    made = PyUnicode_New(text.size, 127)
    memcpy(PyUnicode_DATA(made), text.at, text.size)
    return made


cdef bytes _triple_of(DetectionText *text):
    """uuid, major and minor as written, each with a NUL; None if this is no triple."""
    cdef char triple[_LONGEST_TRIPLE]
    cdef Py_ssize_t size
    if text.uuid.size > _LONGEST_UUID:
        return None
    if text.major.size > _MOST_DIGITS or text.minor.size > _MOST_DIGITS:
        return None
    size = _append(triple, 0, &text.uuid)
    size = _append(triple, size, &text.major)
    size = _append(triple, size, &text.minor)
    return PyBytes_FromStringAndSize(triple, size)


cdef object _key_of(bytes triple):
    """The key of a triple as written; None if the decoder refuses it."""
    uuid, major, minor, _ = triple.decode().split("\0")
    try:
        return beacon_key(uuid, major, minor)
    except ValueError:
        return None


cdef int _zone_of(DetectionText *text, double path_loss_exponent) except -3:
    """The number of the zone, or _UNREADABLE_ZONE."""
    cdef double rssi, power, metres
    if text.zone.size >= 0:
        zone = USUAL_NAMES.get(_text_of(&text.zone))
        return _UNREADABLE_ZONE if zone is None else zone
    rssi = number_of(&text.rssi)
    if not rssi < 0:
        return _UNKNOWN
    power = number_of(&text.tx_power) if text.tx_power.size >= 0 else _DEFAULT_TX_POWER
    metres = pow(10.0, (power - rssi) / (10 * path_loss_exponent))
    if metres < _IMMEDIATE_BELOW:
        return _IMMEDIATE
    return _NEAR if metres <= _NEAR_UP_TO else _FAR


cdef inline Py_ssize_t _append(char *triple, Py_ssize_t size, Text *part) noexcept:
    memcpy(triple + size, part.at, part.size)
    triple[size + part.size] = 0
    return size + part.size + 1
