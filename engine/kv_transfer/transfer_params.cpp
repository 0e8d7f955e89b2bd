#include "engine/kv_transfer/transfer_params.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/json_text.h"

namespace quire {
namespace {

constexpr std::string_view kUnix = "unix:";
constexpr int kMostTokens = 1 << 28;
constexpr std::size_t kMostText = 1024;  // bytes of a name

Error refuse(const std::string& member, const std::string& why) {
  return {ErrorCode::invalid_argument, "kv_transfer_params." + member + " " + why,
          "/kv_transfer_params/" + member};
}

Result<SocketAddress> read_address(const Json& params, const PeerList& peers) {
  const auto host = params.text({"remote_host"});
  const auto port = params.integer({"remote_port"}, {0, 65535});
  if (!host) return refuse("remote_host", "is missing");
  if (host->size() > kMostText)
    return refuse("remote_host", fmt::format("must have 1 to {} bytes", kMostText));
  if (!port) return refuse("remote_port", "is missing");
  const bool is_v6 = host->find(':') != std::string::npos && !host->starts_with(kUnix);
  const auto address = parse_socket_address(host->starts_with(kUnix) ? *host
                                            : is_v6 ? fmt::format("[{}]:{}", *host, *port)
                                                    : fmt::format("{}:{}", *host, *port));
  if (!address) return refuse("remote_host", "is not an address: " + address.error().detail);
  if (!peers.allows(*address))
    return refuse("remote_host",
                  fmt::format("and remote_port are {}, which is not among those that this server "
                              "may fetch from (KvTransferConfig::peers {})",
                              address->text(), peers.names()));
  return *address;
}

Result<std::string> read_name(const Json& params, const char* member) {
  const auto text = params.text({member});
  if (!text) return refuse(member, "is missing");
  if (text->empty() || text->size() > kMostText)
    return refuse(member, fmt::format("must have 1 to {} bytes", kMostText));
  return *text;
}

Result<TransferParams> read_source(const Json& params, const PeerList& peers) {
  TransferParams parsed;
  const auto address = read_address(params, peers);
  if (!address) return address.error();
  const auto engine = read_name(params, "remote_engine_id");
  if (!engine) return engine.error();
  const auto key = read_name(params, "remote_request_id");
  if (!key) return key.error();
  const auto tokens = params.integer({"remote_num_tokens"}, {1, kMostTokens});
  if (!tokens) return refuse("remote_num_tokens", "is missing");
  const auto tp = params.integer({"tp_size"}, {1, 1024});
  if (tp.value_or(1) != 1)
    return refuse("tp_size", fmt::format("is {}; only 1 can be fetched from", *tp));
  if (const auto mode = params.text({"transfer_mode"}); mode.value_or("pull") != "pull")
    return refuse("transfer_mode", "is \"" + *mode + "\"; only pull is built");
  KvKey prefill;
  prefill.key = *key;
  prefill.generation = static_cast<std::uint64_t>(
      params.find({"remote_registration_generation"})
          ? params.at("remote_registration_generation")
                .as_integer({0, std::numeric_limits<std::int64_t>::max()})
          : 0);
  parsed.num_tokens = *tokens;
  parsed.source = KvSource{*address, *engine, std::move(prefill)};
  return parsed;
}

}  // namespace

Result<TransferParams> parse_transfer_params(const std::string& json, const PeerList& peers) try {
  if (json.empty()) return TransferParams{};
  const JsonDocument document(json, {});
  const Json params = document.object();
  const bool keep = params.boolean({"do_remote_decode"}).value_or(false);
  const bool fetch = params.boolean({"do_remote_prefill"}).value_or(false);
  if (keep && fetch)
    return refuse("do_remote_decode",
                  "and do_remote_prefill are both true: a request is either "
                  "begun here or gone on with");
  if (fetch && peers.empty())
    return refuse("do_remote_prefill",
                  "needs a server with KvTransferConfig::role decode or both, which fetches from "
                  "KvTransferConfig::peers");
  if (fetch) return read_source(params, peers);
  return TransferParams{.keep = keep, .source = {}, .num_tokens = 0};
} catch (const Failure& failure) {
  return Error{ErrorCode::invalid_argument, std::string("kv_transfer_params: ") + failure.what(),
               "/kv_transfer_params"};
}

std::string transfer_result(const KeptDescription& kept) {
  std::string json =
      "{\"do_remote_prefill\":true,\"do_remote_decode\":false,"
      "\"remote_block_ids\":[],\"remote_engine_id\":";
  append_json_text(json, kept.engine);
  json += ",\"remote_request_id\":";
  append_json_text(json, kept.prefill.key);
  json += ",\"remote_host\":";
  append_json_text(json, kept.address.is_unix() ? kept.address.text() : kept.address.host);
  json += fmt::format(
      ",\"remote_port\":{},\"tp_size\":1,\"dcp_size\":1,\"pp_size\":1,\"remote_num_tokens\":{},"
      "\"remote_blocks_expiry_time\":null,\"remote_registration_generation\":{},"
      "\"transfer_mode\":\"pull\"}}",
      kept.address.port, kept.num_tokens, kept.prefill.generation);
  return json;
}

}  // namespace quire
