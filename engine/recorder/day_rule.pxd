"""The parts of DayRule (local_days.py) that need no calendar, in C. Instants are epoch seconds."""


cdef struct Rule:
    double max_age
    double retention
    double now


cdef inline double credible(Rule *rule, double arrived_at) noexcept nogil:
    if rule.now - rule.retention <= arrived_at <= rule.now + rule.max_age:
        return arrived_at
    return rule.now


cdef inline bint leaves_trace(Rule *rule, double detected_at, double arrived_at) noexcept nogil:
    cdef double latest = credible(rule, arrived_at) + 86_400
    return rule.now - rule.retention - 86_400 <= detected_at <= latest
