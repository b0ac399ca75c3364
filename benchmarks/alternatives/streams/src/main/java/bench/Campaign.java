package bench;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** A campaign of one beacon. `constant` is what its notifications say, without the last brace. */
record Campaign(int number, long delay, double start, double end, byte[] constant) {

  /** Where campaigns are looked up. */
  record Place(String uuid, int major, int minor) {
    Place {
      uuid = uuid.toLowerCase(Locale.ROOT);
    }
  }

  static Map<Place, List<Campaign>> byBeacon(Path catalog) throws IOException {
    ObjectMapper json = new ObjectMapper();
    Map<Place, List<Campaign>> found = new HashMap<>();
    for (JsonNode each : json.readTree(catalog.toFile())) {
      Place place =
          new Place(each.get("uuid").asText(), each.get("major").asInt(), each.get("minor").asInt());
      byte[] fields = json.writeValueAsBytes(each.get("fields"));
      found
          .computeIfAbsent(place, unused -> new ArrayList<>())
          .add(
              new Campaign(
                  each.get("fields").get("campaign").get("id").asInt(),
                  each.get("delay").asLong(),
                  each.get("start").asDouble(),
                  each.get("end").asDouble(),
                  Arrays.copyOf(fields, fields.length - 1)));
    }
    return found;
  }
}
