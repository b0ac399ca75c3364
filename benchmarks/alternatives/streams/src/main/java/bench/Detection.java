package bench;

import com.fasterxml.jackson.annotation.JsonInclude;

/** A detection as it comes; the device goes into the notification. */
record Detection(
    String uuid, int major, int minor, String proximity, Device device, String detected_at) {

  /** What the workloads say of a device. */
  @JsonInclude(JsonInclude.Include.NON_NULL)
  record Device(
      String udid,
      String name,
      String version,
      String model,
      String token_push,
      String id_connector) {}
}
