"""The job with Bytewax: a dataflow that decides a batch at a time, with a Redis pipeline."""

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSinkMessage
from bytewax.connectors.kafka import operators as kop
from bytewax.dataflow import Dataflow
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import run_main
from redis import Redis

from benchmarks.alternatives import job

_PRODUCER = {"partitioner": "murmur2_random", "enable.idempotence": "true"}


def main() -> None:
    """Until all is done: the source ends where the topic does."""
    campaigns, watch, redis = job.campaigns_by_beacon(), job.Stopwatch(), Redis.from_url(job.REDIS)

    def granted(messages: list[Any]) -> list[Any]:
        now, asked, claims = time.time(), [], redis.pipeline(transaction=False)
        for each in messages:
            origin = (each.partition, each.offset)
            for wanted in job.wanted(campaigns, origin, each.key, each.value, now):
                claims.set(wanted.claim, 1, nx=True, ex=wanted.delay)
                asked.append(wanted)
        answers = claims.execute()
        sent = [
            KafkaSinkMessage(wanted.key, wanted.notification())
            for wanted, answer in zip(asked, answers, strict=True)
            if answer
        ]
        watch.note(len(messages), len(sent))
        return sent

    flow, servers = Dataflow("bench"), [job.SERVERS]
    # The batches of all partitions come together.
    size = job.BATCH // job.PARTITIONS
    detections = kop.input(
        "in", flow, brokers=servers, topics=[job.DETECTIONS], tail=False, batch_size=size
    )
    notifications = op.flat_map_batch("decide", detections.oks, granted)
    kop.output("out", notifications, brokers=servers, topic=job.NOTIFICATIONS, add_config=_PRODUCER)
    run_main(flow, epoch_interval=timedelta(seconds=1), recovery_config=_recovery())


def _recovery() -> Any:
    """Where it was, in SQLite; a topic has its own."""
    directory = Path(os.environ["BENCH_STATE"]) / job.DETECTIONS
    if not directory.exists():
        directory.mkdir(parents=True)
        init_db_dir(directory, 1)
    return RecoveryConfig(directory)


if __name__ == "__main__":
    main()
