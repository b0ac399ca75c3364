# cython: language_level=3, boundscheck=False, wraparound=False
"""Decides, makes grants, and the requests for their claims in C: as grants.py does, with equal
results.

tests/property/test_compiled_grants.py compares the two. Cython compiles this module while the
project is installed.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.math cimport rint
from libc.string cimport memcpy

from engine.redis.claim_wire import REQUEST_BYTES, DeviceRequests
from engine.redis.device_copies import DeviceKey
from engine.trigger.grants import Grant, hash_of_campaign
from engine.trigger.standing import standing_decision
from rules.decision import UNKNOWN_BEACON, decide
from rules.model import Zone

cdef enum:
    _ID_BYTES = 16
    _REQUEST_BYTES = 40

if REQUEST_BYTES != _REQUEST_BYTES:
    raise ImportError("claim_wire.py has another form of requests")

cdef object _named_tuple = tuple.__new__
cdef object _UNKNOWN = Zone.UNKNOWN


def decider(double now, double max_age, remembered):
    """See grants.py."""
    return _Decider(now, max_age, remembered)


cdef class _Decider:
    """Decides one detection after the other."""

    cdef double now, max_age
    cdef object remembered
    cdef dict standing

    def __init__(self, double now, double max_age, remembered):
        remembered.forget_expired(now)
        self.now, self.max_age = now, max_age
        self.remembered, self.standing = remembered, remembered.standing

    def __call__(self, detection, beacon):
        cdef double at
        cdef bint is_recent
        cdef PyObject *stands
        if beacon is None:
            return UNKNOWN_BEACON
        zone, at, udid = detection.zone, detection.detected_at, detection.message.device.udid
        target = beacon.target
        phase, is_recent = target.current, self.now - self.max_age <= at <= self.now + self.max_age
        stands = PyDict_GetItem(self.standing, udid)
        if stands != NULL and is_recent and self._stands(<object>stands, phase, zone, at):
            return phase.none_granted
        claims = self.remembered.young.get(udid)
        if claims is None:
            claims = self.remembered.of(udid)
        if not is_recent or target.refusal is not None or not _is_near(target.reach, zone):
            return decide(target, zone, at, self.now, self.max_age, claims)
        if not phase.since <= at < phase.until:
            phase = target.phase_at(at)
        return self._of_phase(phase, claims if type(claims) is dict else {}, udid, zone, at)

    cdef bint _stands(self, stands, phase, zone, double at) except -1:
        if stands.phase is not phase.mark or stands.zone is not zone:
            return False
        return phase.since <= at < stands.until

    cdef object _of_phase(self, phase, dict claims, udid, zone, double at):
        """The decision about the open campaigns."""
        cdef Py_ssize_t held = 0
        cdef tuple cap, caps = phase.caps
        cdef list granted = []
        for cap in caps:
            if _is_held(claims, cap, at):
                held += 1
            elif not _was_read(claims, cap, at):
                granted.append(cap[2])
        if not granted:
            if held and held == len(caps):
                self.standing[udid] = standing_decision(phase, zone, claims)
            return phase.none_granted
        if len(granted) == len(caps):
            return phase.all_granted
        return phase.decision(tuple(granted))


cdef bint _is_near(reach, zone) except -1:
    return reach is None or (zone is not _UNKNOWN and zone <= reach)


cdef bint _is_held(dict claims, tuple cap, double at) except -1:
    """Whether a certain claim throttles the campaign of the cap (claim_memory.py)."""
    cdef PyObject *since = PyDict_GetItem(claims, cap[0])
    return since != NULL and at < <double><object>since + <double>cap[1]


cdef bint _was_read(dict claims, tuple cap, double at) except -1:
    """Whether a claim that was only read throttles it (RememberedClaims.forbidding)."""
    cdef double at_claim
    cdef PyObject *since = PyDict_GetItem(claims, -cap[0])
    if since == NULL or cap[2].format == "connector":
        return False
    at_claim = <double><object>since
    return at_claim < at < at_claim + <double>cap[1]


def grants_of(detection, beacon, decision):
    """See grants.py."""
    cdef tuple granted = decision.granted
    cdef list grants = []
    if not granted:
        return grants
    identity = _identity_of(detection)
    device = _named_tuple(
        DeviceKey, (beacon.company_reference.id, detection.message.device.udid)
    )
    for campaign in granted:
        id_ = _id_of(hash_of_campaign(campaign.id).copy(), identity)
        is_call = campaign.format == "connector"
        grants.append(Grant(detection, beacon, campaign, decision, id_, device, is_call))
    return grants


cdef bytes _id_of(hashed, identity):
    cdef bytes digest, id_
    cdef unsigned char *at
    hashed.update(identity)
    digest = hashed.digest()
    id_ = PyBytes_FromStringAndSize(PyBytes_AS_STRING(digest), _ID_BYTES)
    at = <unsigned char *>PyBytes_AS_STRING(id_)
    at[6] = at[6] & 0x0F | 0x50
    at[8] = at[8] & 0x3F | 0x80
    return id_


cdef bytes _identity_of(detection):
    record, index = detection.record, detection.index
    cdef long long at_ms = _milliseconds(detection.detected_at)
    cdef str identity = (
        f"\0{detection.message.device.udid}\0{record.topic}\0{record.partition}"
        f"\0{record.offset}\0{at_ms}"
    )
    return (identity + f"\0{index}" if index else identity).encode()


cdef inline long long _milliseconds(double seconds) noexcept:
    """Rounded as Python's `round` does: half to even."""
    return <long long>rint(seconds * 1000)


cdef class _Requests:
    """The requests of one device."""

    cdef list positions
    cdef bytes packed


def requests_of(grants):
    """See grants.py."""
    cdef dict found = {}
    cdef _Requests of_device
    cdef PyObject *known
    cdef Py_ssize_t position = 0
    for grant in grants:
        udid = grant.device[1]
        known = PyDict_GetItem(found, udid)
        if known != NULL:
            of_device = <_Requests>known
        else:
            of_device = found[udid] = _Requests.__new__(_Requests)
            of_device.positions, of_device.packed = [], b""
        of_device.positions.append(position)
        of_device.packed += _packed(grant)
        position += 1
    return [
        _named_tuple(DeviceRequests, (udid, (<_Requests>of).positions, (<_Requests>of).packed))
        for udid, of in found.items()
    ]


cdef bytes _packed(grant):
    """Campaign, owner, detected_at (epoch ms) and delay (ms), big-endian."""
    cdef bytes packed = PyBytes_FromStringAndSize(NULL, _REQUEST_BYTES)
    cdef bytes owner = grant.notification_id
    cdef unsigned char *at = <unsigned char *>PyBytes_AS_STRING(packed)
    campaign = grant.campaign
    if PyBytes_GET_SIZE(owner) != _ID_BYTES:
        raise ValueError("an owner has 16 bytes")
    _put(at, campaign.id)
    memcpy(at + 8, PyBytes_AS_STRING(owner), _ID_BYTES)
    _put(at + 24, _milliseconds(grant.detection.detected_at))
    _put(at + 32, <long long>campaign.delay * 1000)
    return packed


cdef inline void _put(unsigned char *at, long long number) noexcept:
    cdef int i
    for i in range(8):
        at[7 - i] = (number >> (8 * i)) & 0xFF
