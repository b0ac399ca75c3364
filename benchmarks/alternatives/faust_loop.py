"""The job with faust-streaming: an agent, and a table of claims in memory with a changelog."""

import logging
import os
import signal
import time
from typing import Any

import faust

from benchmarks.alternatives import job


def main() -> None:
    """Until all is done."""
    campaigns, watch = job.campaigns_by_beacon(), job.Stopwatch()
    app = faust.App(
        job.GROUP,
        broker=f"kafka://{job.SERVERS}",
        datadir=os.environ["BENCH_STATE"],
        value_serializer="raw",
        key_serializer="raw",
        topic_partitions=job.PARTITIONS,
        web_enabled=False,
        consumer_auto_offset_reset="earliest",
        stream_wait_empty=False,
    )
    detections = app.topic(job.DETECTIONS, value_type=bytes, key_type=bytes)
    notifications = app.topic(job.NOTIFICATIONS, value_type=bytes, key_type=bytes)
    claims: Any = app.Table("claims", default=float, partitions=job.PARTITIONS)

    async def decide(stream: Any) -> None:
        async for event in stream.events():
            origin, sent = (event.message.partition, event.message.offset), 0
            for wanted in job.wanted(
                campaigns, origin, event.message.key, event.message.value, time.time()
            ):
                if wanted.at >= claims[wanted.claim] + wanted.delay:
                    claims[wanted.claim] = wanted.at
                    await notifications.send(key=wanted.key, value=wanted.notification())
                    sent += 1
            watch.note(1, sent)
            if watch.done >= watch.wanted:
                await app.producer.flush()
                # The worker stops the app; an agent that did would wait for itself.
                os.kill(os.getpid(), signal.SIGTERM)

    app.agent(detections)(decide)
    # Else what is printed would be logged as warnings.
    worker = faust.Worker(app, loglevel=logging.ERROR, console_port=None, redirect_stdouts=False)
    worker.execute_from_commandline()


if __name__ == "__main__":
    main()
