#include "app/kv_transfer_json.h"

#include <array>
#include <utility>

#include "base/json.h"
#include "engine/wire/socket_address.h"

namespace quire {
namespace {

constexpr std::array<std::pair<std::string_view, KvRole>, 3> kRoles{
    {{"kv_producer", KvRole::prefill}, {"kv_consumer", KvRole::decode}, {"kv_both", KvRole::both}}};

KvRole role_of(const Json& value) {
  for (const auto& [name, role] : kRoles)
    if (value.as_string() == name) return role;
  value.fail("must be \"kv_producer\", \"kv_consumer\" or \"kv_both\", is " + value.describe());
}

KvPlane plane_of(const Json& value) {
  if (value.as_string() == "QuireConnector") return KvPlane::local;
  if (value.as_string() == "NixlConnector" || value.as_string() == "NixlPullConnector")
    return KvPlane::nixl;
  value.fail("must be \"QuireConnector\" (or \"NixlConnector\", which is not built yet), is " +
             value.describe());
}

KvLoadFailurePolicy policy_of(const Json& value) {
  if (value.as_string() == "recompute") return KvLoadFailurePolicy::recompute;
  if (value.as_string() == "fail") return KvLoadFailurePolicy::fail;
  value.fail("must be \"recompute\" or \"fail\", is " + value.describe());
}

template <class Parse>
std::string address_of(const Json& value, Parse parse) {
  const auto parsed = parse(value.as_string());
  if (parsed.has_error()) value.fail(parsed.error().detail);
  return *parsed;
}

void read_extra(const Json& extra, KvTransferConfig& config) {
  constexpr IntRange kSeconds{1, std::numeric_limits<int>::max()};
  constexpr IntRange kBytes{1, std::numeric_limits<std::int64_t>::max()};
  for (const auto& [name, value] : extra.members()) {
    if (name == "kv_listen") {
      config.listen = address_of(value, parse_kv_listen);
    } else if (name == "kv_peers") {
      for (const Json& peer : value.items())
        config.peers.push_back({address_of(peer, parse_kv_peer)});
    } else if (name == "kv_lease_duration") {
      config.lease_seconds = static_cast<int>(value.as_integer(kSeconds));
    } else if (name == "kv_buffer_bytes") {
      config.buffer_bytes = value.as_integer(kBytes);
    } else {
      value.fail(
          "is not a field of it that has an effect here; kv_listen, kv_peers, "
          "kv_lease_duration and kv_buffer_bytes are");
    }
  }
}

// False: the field is unknown.
bool read_field(std::string_view name, const Json& value, KvTransferConfig& config) {
  if (name == "kv_connector") {
    config.plane = plane_of(value);
  } else if (name == "kv_role") {
    config.role = role_of(value);
  } else if (name == "kv_load_failure_policy") {
    config.load_failure_policy = policy_of(value);
  } else if (name == "kv_connector_extra_config") {
    read_extra(value, config);
  } else {
    return false;
  }
  return true;
}

}  // namespace

Result<std::string> parse_kv_listen(std::string_view text) {
  const auto address = parse_socket_address(text);
  if (address.has_error()) return address.error();
  if (address->host == "0.0.0.0" || address->host == "::" || address->host == "*")
    return Error{ErrorCode::invalid_argument,
                 "\"" + std::string(text) +
                     "\" is not an address that others can be told: give the one at which decoding "
                     "servers reach this machine",
                 {}};
  return std::string(text);
}

Result<std::string> parse_kv_peer(std::string_view text) {
  const auto address = parse_socket_address(text);
  const bool is_host = !text.empty() && text.find_first_of(":/ []") == std::string_view::npos;
  if (address.has_error() && !is_host) return address.error();
  return std::string(text);
}

Result<KvTransferConfig> parse_kv_transfer_config(std::string_view json) try {
  const JsonDocument document(std::string(json), {});
  KvTransferConfig config;
  for (const auto& [name, value] : document.object().members()) {
    if (!read_field(name, value, config))
      value.fail(
          "has no effect here; kv_connector, kv_role, kv_load_failure_policy and "
          "kv_connector_extra_config are read");
  }
  document.object().at("kv_connector");
  document.object().at("kv_role");
  return config;
} catch (const Failure& failure) {
  return Error{ErrorCode::invalid_argument, failure.what(), "--kv-transfer-config"};
}

}  // namespace quire
