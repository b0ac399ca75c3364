"""The job with Quix Streams: a stateful function; its state is a claim per campaign and device."""

import os
import time
from typing import Any

from quixstreams import Application, message_context

from benchmarks.alternatives import job


def main() -> None:
    """Until all is done."""
    campaigns, watch = job.campaigns_by_beacon(), job.Stopwatch()
    app = Application(
        broker_address=job.SERVERS,
        consumer_group=job.GROUP,
        auto_offset_reset="earliest",
        state_dir=os.environ["BENCH_STATE"],
        loglevel="ERROR",
    )
    plain = {"value_deserializer": "bytes", "key_deserializer": "bytes"}
    detections = app.topic(job.DETECTIONS, **plain)
    written = {"value_serializer": "bytes", "key_serializer": "bytes"}
    notifications = app.topic(job.NOTIFICATIONS, **written)

    def decide(value: bytes, key: bytes, _at: int, _headers: Any, state: Any) -> list[bytes]:
        sent = []
        origin = (message_context().partition, message_context().offset)
        for wanted in job.wanted(campaigns, origin, key, value, time.time()):
            before = state.get(wanted.claim)
            if before is None or wanted.at >= before + wanted.delay:
                state.set(wanted.claim, wanted.at)
                sent.append(wanted.notification())
        watch.note(1, len(sent))
        if watch.done >= watch.wanted:
            app.stop()
        return sent

    frame = app.dataframe(detections)
    frame.apply(decide, stateful=True, metadata=True, expand=True).to_topic(notifications)
    app.run()


if __name__ == "__main__":
    main()
