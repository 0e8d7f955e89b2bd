#include "app/flags/kv_events_json.h"

#include "base/json.h"

namespace quire {
namespace {

constexpr std::string_view kDefaultEndpoint = "tcp://*:5557";

struct Parsed {
  KvEventsConfig events;
  bool enabled = false;
  bool publishes = true;
};

// False: the field is unknown.
bool read_field(std::string_view name, const Json& value, Parsed& parsed) {
  KvEventsConfig& events = parsed.events;
  constexpr IntRange kCount{0, std::numeric_limits<int>::max()};
  if (name == "enable_kv_cache_events") {
    parsed.enabled = value.as_boolean();
  } else if (name == "publisher") {
    if (value.as_string() != "zmq" && value.as_string() != "null") {
      value.fail("must be \"zmq\" or \"null\", is " + value.describe());
    }
    parsed.publishes = value.as_string() == "zmq";
  } else if (name == "endpoint") {
    if (!value.is_null()) events.endpoint = value.as_string();
  } else if (name == "replay_endpoint") {
    if (!value.is_null()) events.replay_endpoint = value.as_string();
  } else if (name == "topic") {
    if (!value.is_null()) events.topic = value.as_string();
  } else if (name == "buffer_steps") {
    events.buffer_steps = static_cast<int>(value.as_integer(kCount));
  } else if (name == "hwm") {
    events.high_water_mark = static_cast<int>(value.as_integer(kCount));
  } else if (name == "max_queue_size") {
    value.as_integer(kCount);  // our queue has its own limit
  } else {
    return false;
  }
  return true;
}

}  // namespace

Result<KvEventsConfig> parse_kv_events_config(std::string_view json) try {
  const JsonDocument document(std::string(json), {});
  Parsed parsed{.events = {.endpoint = std::string(kDefaultEndpoint)}};
  for (const auto& [name, value] : document.object().members()) {
    if (!read_field(name, value, parsed)) value.fail("is not a field of it");
  }
  if (!parsed.enabled || !parsed.publishes) return KvEventsConfig{};
  return parsed.events;
} catch (const Failure& failure) {
  return Error{ErrorCode::invalid_argument, failure.what(), "--kv-events-config"};
}

}  // namespace quire
