package bench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Stream;
import java.util.Comparator;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.state.Stores;

/** Arguments: the number of records, and a processor that is ignored (the caller has pinned us). */
public final class Main {
  private Main() {}

  public static void main(String[] arguments) throws Exception {
    var campaigns = Campaign.byBeacon(Path.of(of("CATALOG")));
    System.out.println(run(campaigns, Long.parseLong(arguments[0])));
  }

  private static String run(
      Map<Campaign.Place, List<Campaign>> campaigns, long wanted)
      throws InterruptedException, IOException {
    Stopwatch watch = new Stopwatch(wanted);
    Path directory = Files.createTempDirectory("streams");
    double maxAge = Double.parseDouble(of("MAX_AGE"));
    Topology topology = new Topology();
    topology
        .addSource("detections", of("DETECTIONS"))
        .addProcessor("trigger", () -> new Trigger(campaigns, maxAge, watch), "detections")
        .addStateStore(
            Stores.keyValueStoreBuilder(
                Stores.inMemoryKeyValueStore(Trigger.CLAIMS), Serdes.String(), Serdes.Long()),
            "trigger")
        .addSink("notifications", of("NOTIFICATIONS"), "trigger");
    KafkaStreams streams = new KafkaStreams(topology, options(directory));
    streams.setUncaughtExceptionHandler(
        error -> {
          error.printStackTrace();
          Runtime.getRuntime().halt(1);
          return StreamThreadExceptionResponse.SHUTDOWN_APPLICATION;
        });
    streams.start();
    watch.finished.await();
    streams.close(Duration.ofSeconds(60));
    remove(directory);
    return watch.result();
  }

  private static Properties options(Path directory) {
    Properties options = new Properties();
    options.put(StreamsConfig.APPLICATION_ID_CONFIG, of("GROUP"));
    options.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, of("KAFKA"));
    options.put(StreamsConfig.STATE_DIR_CONFIG, directory.toString());
    options.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
    options.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    options.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
    options.put(
        StreamsConfig.PROCESSING_GUARANTEE_CONFIG,
        System.getenv().getOrDefault("BENCH_GUARANTEE", StreamsConfig.AT_LEAST_ONCE));
    options.put(StreamsConfig.consumerPrefix("max.poll.records"), 5000);
    options.put(StreamsConfig.producerPrefix("batch.size"), 500_000);
    return options;
  }

  private static String of(String name) {
    return System.getenv("BENCH_" + name);
  }

  private static void remove(Path directory) throws IOException {
    try (Stream<Path> found = Files.walk(directory)) {
      found.sorted(Comparator.reverseOrder()).forEach(each -> each.toFile().delete());
    }
  }
}
