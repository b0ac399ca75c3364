package bench;

import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
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
                  + " \"notifications\": %d, \"peak_bytes\": %d}",
              done - first,
              (System.nanoTime() - begin) / 1e9,
              (used() - processor) / 1e9,
              notifications,
              peak());
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

  private static long peak() {
    try {
      for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
        if (line.startsWith("VmHWM:")) {
          return 1024 * Long.parseLong(line.replaceAll("[^0-9]", ""));
        }
      }
    } catch (IOException error) {
      return 0;
    }
    return 0;
  }
}
