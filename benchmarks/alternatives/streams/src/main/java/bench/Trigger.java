package bench;

import com.fasterxml.jackson.annotation.JsonInclude;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.RecordMetadata;
import org.apache.kafka.streams.state.KeyValueStore;

/** Decides each detection; a claim is the time of the last grant, in the state store. */
final class Trigger implements Processor<String, byte[], String, byte[]> {
  static final String CLAIMS = "claims";
  private static final long LIFETIME = 300;
  private static final Set<String> NEAR_ENOUGH = Set.of("immediate", "near", "far");
  private static final DateTimeFormatter FORM =
      DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm:ssxx");

  private final Map<Campaign.Place, List<Campaign>> campaigns;
  private final double maxAge;
  private final Stopwatch watch;
  private final ObjectReader reader;
  private final ObjectWriter writer;
  private ProcessorContext<String, byte[]> context;
  private KeyValueStore<String, Long> claims;

  /** What differs between the notifications of a campaign. */
  record Rest(
      String id,
      String proximity,
      Detection.Device device,
      String detected_at,
      String triggered_at,
      String expires_at) {}

  Trigger(Map<Campaign.Place, List<Campaign>> campaigns, double maxAge, Stopwatch watch) {
    this.campaigns = campaigns;
    this.maxAge = maxAge;
    this.watch = watch;
    ObjectMapper json =
        new ObjectMapper().disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES);
    reader = json.readerFor(Detection.class);
    writer = json.writerFor(Rest.class);
  }

  @Override
  public void init(ProcessorContext<String, byte[]> context) {
    this.context = context;
    claims = context.getStateStore(CLAIMS);
  }

  @Override
  public void process(Record<String, byte[]> record) {
    try {
      watch.note(decide(record));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private int decide(Record<String, byte[]> record) throws IOException {
    Detection seen = reader.readValue(record.value());
    Instant at = OffsetDateTime.parse(seen.detected_at(), FORM).toInstant();
    double seconds = at.toEpochMilli() / 1000.0;
    boolean recent = Math.abs(System.currentTimeMillis() / 1000.0 - seconds) <= maxAge;
    if (!recent || !NEAR_ENOUGH.contains(seen.proximity())) {
      return 0;
    }
    int sent = 0;
    Campaign.Place place = new Campaign.Place(seen.uuid(), seen.major(), seen.minor());
    for (Campaign each : campaigns.getOrDefault(place, List.of())) {
      if (each.start() <= seconds && seconds <= each.end() && claim(each, seen, at)) {
        context.forward(record.withValue(notification(each, seen, at)));
        sent++;
      }
    }
    return sent;
  }

  private boolean claim(Campaign campaign, Detection seen, Instant at) {
    String key = campaign.number() + ":" + seen.device().udid();
    Long before = claims.get(key);
    if (before != null && at.getEpochSecond() < before + campaign.delay()) {
      return false;
    }
    claims.put(key, at.getEpochSecond());
    return true;
  }

  private byte[] notification(Campaign campaign, Detection seen, Instant at) throws IOException {
    RecordMetadata origin = context.recordMetadata().orElseThrow();
    String id = origin.partition() + "-" + origin.offset() + "-" + campaign.number();
    Rest rest =
        new Rest(
            id,
            seen.proximity(),
            seen.device(),
            written(at),
            written(Instant.now()),
            written(at.plusSeconds(LIFETIME)));
    byte[] differs = writer.writeValueAsBytes(rest);
    ByteArrayOutputStream value =
        new ByteArrayOutputStream(campaign.constant().length + differs.length);
    value.write(campaign.constant());
    value.write(',');
    value.write(differs, 1, differs.length - 1);
    return value.toByteArray();
  }

  private static String written(Instant at) {
    return FORM.format(at.atOffset(ZoneOffset.UTC));
  }
}

/** A detection as it comes; the device goes into the notification. */
record Detection(
    String uuid, int major, int minor, String proximity, Device device, String detected_at) {

  @JsonInclude(JsonInclude.Include.NON_NULL)
  record Device(String udid, String name, String version, String model) {}
}
