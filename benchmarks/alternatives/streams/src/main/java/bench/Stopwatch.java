package bench;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;

/**
 * From the first tenth of the records to the last one, when it has been processed: what is then
 * still to be flushed and committed is not counted, which favours Kafka Streams a little.
 */
final class Stopwatch {
  final CountDownLatch finished = new CountDownLatch(1);
  private final long wanted;
  private long done;
  private long first;
  private long notifications;
  private long begin;
  private long processor;
  private String result = "";

  Stopwatch(long wanted) {
    this.wanted = wanted;
  }

  /** One record is processed. Called by one thread. */
  void note(int sent) {
    done++;
    notifications += sent;
    if (first == 0 && done >= wanted / 10) {
      first = done;
      begin = System.nanoTime();
      processor = used();
    }
    if (done == wanted) {
      result =
          String.format(
              Locale.ROOT,
              "{\"records\": %d, \"seconds\": %.6f, \"seconds_processor\": %.6f,"
                  + " \"notifications\": %d}",
              done - first,
              (System.nanoTime() - begin) / 1e9,
              (used() - processor) / 1e9,
              notifications);
      finished.countDown();
    }
  }

  String result() {
    return result;
  }

  /** All threads, those of the compiler and of the collector too. */
  private static long used() {
    return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
        .getProcessCpuTime();
  }
}
