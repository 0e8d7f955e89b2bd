#include "app/flags/kv_transfer_json.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <memory>
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

constexpr std::string_view kNixlPush = "NixlPushConnector";

KvPlane plane_of(const Json& value) {
  if (value.as_string() == "QuireConnector") return KvPlane::local;
  for (const char* name : {"NixlConnector", "NixlPullConnector", kNixlPush.data()})
    if (value.as_string() == name) return KvPlane::nixl;
  if (value.as_string() == "MooncakeConnector") return KvPlane::mooncake;
  value.fail(
      "must be \"QuireConnector\", \"NixlConnector\", \"NixlPushConnector\", "
      "\"MooncakeConnector\" or \"OffloadingConnector\", is " +
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

// False: the field is unknown.
bool read_nixl(std::string_view name, const Json& value, NixlConfig& nixl) {
  if (name == "nixl_library") {
    nixl.library = value.as_string();
  } else if (name == "transfer_profile") {
    nixl.profile = value.as_string();
  } else if (name == "peer_model") {
    nixl.peer_model = value.as_string();
  } else if (name == "peer_attention") {
    nixl.peer_attention = value.as_string();
  } else if (name == "enforce_handshake_compat") {
    nixl.compare_hash = value.as_boolean();
  } else if (name == "backends") {
    for (const Json& backend : value.items())
      if (backend.as_string() != "UCX") value.fail("must be [\"UCX\"]");
  } else {
    return false;
  }
  return true;
}

// Of planes on which whoever prefills writes. False: the field is unknown.
bool read_writing(std::string_view name, const Json& value, KvTransferConfig& config) {
  constexpr IntRange kTokens{1, 1 << 14};
  if (name == "mooncake_protocol" && config.uses_mooncake()) {
    if (value.as_string() != "tcp") value.fail("must be \"tcp\", is " + value.describe());
  } else if (name == "peer_block_size" && (config.uses_mooncake() || config.pushes_nixl())) {
    config.peer_block_size = static_cast<int>(value.as_integer(kTokens));
  } else {
    return false;
  }
  return true;
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
    } else if (!(config.uses_nixl() && read_nixl(name, value, config.nixl)) &&
               !read_writing(name, value, config)) {
      value.fail("is not a field of it that has an effect here; kv_listen, kv_peers, "
                 "kv_lease_duration, kv_buffer_bytes" +
                 std::string(config.uses_nixl() ? ", nixl_library, transfer_profile, peer_model, "
                                                  "peer_attention, backends, "
                                                  "enforce_handshake_compat"
                                                : "") +
                 (config.uses_mooncake() ? ", mooncake_protocol" : "") +
                 (config.uses_mooncake() || config.pushes_nixl() ? ", peer_block_size" : "") +
                 " are");
    }
  }
}

void read_offload_extra(const Json& extra, KvOffloadConfig& offload) {
  constexpr IntRange kBytes{1, std::numeric_limits<std::int64_t>::max()};
  for (const auto& [name, value] : extra.members()) {
    const auto only = [&value = value](std::string_view what) {
      if (value.as_string() != what)
        value.fail("must be \"" + std::string(what) + "\", is " + value.describe());
    };
    if (name == "cpu_bytes_to_use") {
      offload.host_bytes = value.as_integer(kBytes);
    } else if (name == "spec_name") {
      only("CPUOffloadingSpec");
    } else if (name == "eviction_policy") {
      only("lru");
    } else {
      value.fail(
          "is not a field of it that has an effect here; cpu_bytes_to_use, spec_name and "
          "eviction_policy are read");
    }
  }
}

// What is behind the cache, as vLLM's connector of that.
KvOffloadConfig read_offloading(const Json& object) {
  KvOffloadConfig offload;
  for (const auto& [name, value] : object.members()) {
    if (name == "kv_connector_extra_config") {
      read_offload_extra(value, offload);
    } else if (name == "kv_role") {
      if (role_of(value) != KvRole::both) value.fail("must be \"kv_both\"");
    } else if (name != "kv_connector") {
      value.fail(
          "has no effect with OffloadingConnector; kv_role and kv_connector_extra_config are read");
    }
  }
  object.at("kv_connector_extra_config").at("cpu_bytes_to_use");
  return offload;
}

// False: the field is unknown.
bool read_field(std::string_view name, const Json& value, KvTransferConfig& config) {
  if (name == "kv_connector") {
    config.plane = plane_of(value);
    config.nixl.pushes = value.as_string() == kNixlPush;
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

// In any spelling that the system takes for one.
bool is_wildcard(const std::string& host) {
  if (host == "*") return true;
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (host.empty() || ::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> held(found, ::freeaddrinfo);
  if (found->ai_family == AF_INET)
    return reinterpret_cast<const sockaddr_in*>(found->ai_addr)->sin_addr.s_addr == INADDR_ANY;
  in6_addr v6 = reinterpret_cast<const sockaddr_in6*>(found->ai_addr)->sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&v6)) v6.s6_addr[10] = v6.s6_addr[11] = 0;
  return IN6_IS_ADDR_UNSPECIFIED(&v6);
}

}  // namespace

Result<std::string> parse_kv_listen(std::string_view text) {
  const auto address = parse_socket_address(text);
  if (address.has_error()) return address.error();
  if (is_wildcard(address->host))
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
  if (address.has_value() && !address->is_unix() && address->port == 0)
    return Error{
        ErrorCode::invalid_argument,
        "\"" + std::string(text) +
            "\" has port 0, at which nobody listens; ports are from 1 to 65535, and a host "
            "alone allows all",
        {}};
  return std::string(text);
}

Result<KvConnectorConfig> parse_kv_transfer_config(std::string_view json) try {
  const JsonDocument document(std::string(json), {});
  KvConnectorConfig config;
  const auto connector = document.object().find({"kv_connector"});
  if (connector && connector->is_string() && connector->as_string() == "OffloadingConnector") {
    config.offload = read_offloading(document.object());
    return config;
  }
  if (connector) read_field("kv_connector", *connector, config.transfer);  // first: it says which
                                                                           // fields there are
  for (const auto& [name, value] : document.object().members()) {
    if (!read_field(name, value, config.transfer))
      value.fail(
          "has no effect here; kv_connector, kv_role, kv_load_failure_policy and "
          "kv_connector_extra_config are read");
  }
  document.object().at("kv_connector");
  document.object().at("kv_role");
  // vLLM's own choice is RDMA, which is not spoken here.
  if (config.transfer.uses_mooncake())
    document.object().at("kv_connector_extra_config").at("mooncake_protocol");
  return config;
} catch (const Failure& failure) {
  return Error{ErrorCode::invalid_argument, failure.what(), "--kv-transfer-config"};
}

}  // namespace quire
