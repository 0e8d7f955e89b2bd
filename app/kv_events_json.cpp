#include "app/kv_events_json.h"

#include <simdjson.h>

#include <limits>

namespace quire {
namespace {

using simdjson::dom::element;

constexpr std::string_view kDefaultEndpoint = "tcp://*:5557";

struct Parsed {
  KvEventsConfig events;
  bool enabled = false;
  bool publishes = true;
};

bool read(element value, std::string& out) {
  std::string_view text;
  if (value.is_null()) return true;
  if (value.get(text) != simdjson::SUCCESS) return false;
  out = text;
  return true;
}

bool read(element value, int& out) {
  std::int64_t number = 0;
  if (value.get(number) != simdjson::SUCCESS || number < 0 ||
      number > std::numeric_limits<int>::max())
    return false;
  out = static_cast<int>(number);
  return true;
}

// False: the field has the wrong type; nothing: it is unknown.
std::optional<bool> read_field(std::string_view name, element value, Parsed& parsed) {
  KvEventsConfig& events = parsed.events;
  if (name == "enable_kv_cache_events") return value.get(parsed.enabled) == simdjson::SUCCESS;
  if (name == "publisher") {
    std::string publisher;
    if (!read(value, publisher) || (publisher != "zmq" && publisher != "null")) return false;
    parsed.publishes = publisher == "zmq";
    return true;
  }
  if (name == "endpoint") return read(value, events.endpoint);
  if (name == "replay_endpoint") return read(value, events.replay_endpoint);
  if (name == "topic") return read(value, events.topic);
  if (name == "buffer_steps") return read(value, events.buffer_steps);
  if (name == "hwm") return read(value, events.high_water_mark);
  int ignored = 0;
  if (name == "max_queue_size") return read(value, ignored);  // our queue has its own limit
  return std::nullopt;
}

Error bad(std::string detail) {
  return {ErrorCode::invalid_argument, std::move(detail), "--kv-events-config"};
}

}  // namespace

Result<KvEventsConfig> parse_kv_events_config(std::string_view json) {
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  if (parser.parse(json.data(), json.size()).get(object) != simdjson::SUCCESS)
    return bad("is no JSON object");
  Parsed parsed{.events = {.endpoint = std::string(kDefaultEndpoint)}};
  for (const auto& [name, value] : object) {
    const std::optional<bool> taken = read_field(name, value, parsed);
    if (!taken) return bad("has no field \"" + std::string(name) + "\"");
    if (!*taken) return bad("field \"" + std::string(name) + "\" has a wrong value");
  }
  if (!parsed.enabled || !parsed.publishes) return KvEventsConfig{};
  return parsed.events;
}

}  // namespace quire
