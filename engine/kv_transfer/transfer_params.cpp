#include "engine/kv_transfer/transfer_params.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/json.h"
#include "base/json_text.h"
#include "engine/kv_transfer/mooncake_params.h"

namespace quire {
namespace {

constexpr std::string_view kUnix = "unix:";
constexpr int kMostTokens = 1 << 28;
constexpr std::size_t kMostBlocks = 1 << 20;
constexpr int kMostRanks = 1024;
constexpr std::size_t kMostText = 1024;  // bytes of a name
constexpr std::size_t kLeastKey = 16;    // of one that nobody may guess

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

// [[1, 2], [7]]: by group.
std::vector<std::vector<std::int64_t>> read_blocks(const Json& params) {
  std::vector<std::vector<std::int64_t>> blocks;
  std::size_t count = 0;
  for (const Json& group : params.at("remote_block_ids").items()) {
    auto& ids = blocks.emplace_back();
    for (const Json& id : group.items()) {
      ids.push_back(id.as_integer({0, std::numeric_limits<std::int32_t>::max()}));
      if (++count > kMostBlocks) group.fail(fmt::format("has more than {} blocks", kMostBlocks));
    }
  }
  return blocks;
}

// The error is empty where all of it is understood.
Result<void> read_ranks(const Json& params, KvSource& source) {
  source.tensor_ranks = static_cast<int>(params.integer({"tp_size"}, {1, kMostRanks}).value_or(1));
  for (const char* member : {"dcp_size", "pp_size"})
    if (const auto size = params.integer({member}, {1, kMostRanks}); size.value_or(1) != 1)
      return refuse(member, fmt::format("is {}; only 1 can be fetched from", *size));
  return {};
}

// What the plane nixl reads beside.
Result<void> read_nixl_source(const Json& params, KvSource& source) {
  if (auto ranks = read_ranks(params, source); !ranks) return ranks;
  source.blocks = read_blocks(params);
  if (const auto hash = params.text({"quire_prompt_hash"})) {
    std::uint64_t value = 0;
    const auto read = std::from_chars(hash->data(), hash->data() + hash->size(), value, 16);
    if (read.ec != std::errc() || read.ptr != hash->data() + hash->size())
      return refuse("quire_prompt_hash", "must be a number in hexadecimal digits");
    source.prompt_hash = value;
  }
  return {};
}

// Both sides of a push are told its name at once.
Result<std::string> read_push_key(const Json& params, KvPlane plane) {
  if (plane == KvPlane::nixl)
    return refuse("transfer_mode",
                  "is \"push\"; over KvTransferConfig::plane nixl that is a setting of both "
                  "servers (NixlConfig::pushes)");
  auto key = read_name(params, "remote_request_id");
  if (key && key->size() < kLeastKey)
    return refuse("remote_request_id",
                  fmt::format("must have at least {} bytes to be pushed by: whoever knows it may "
                              "read the prompt's keys and values",
                              kLeastKey));
  return key;
}

Result<bool> read_is_pushed(const Json& params) {
  const std::string mode = params.text({"transfer_mode"}).value_or("pull");
  if (mode != "pull" && mode != "push")
    return refuse("transfer_mode", "must be \"pull\" or \"push\", is \"" + mode + "\"");
  return mode == "push";
}

// The prefill may not have begun: then neither its owner's start nor its tokens are known.
Result<TransferParams> read_pushed_source(const Json& params, const PeerList& peers,
                                          KvPlane plane) {
  const auto address = read_address(params, peers);
  if (!address) return address.error();
  const auto key = read_push_key(params, plane);
  if (!key) return key.error();
  std::string engine;
  if (params.text({"remote_engine_id"})) {
    auto name = read_name(params, "remote_engine_id");
    if (!name) return name.error();
    engine = std::move(*name);
  }
  TransferParams parsed;
  parsed.num_tokens =
      static_cast<int>(params.integer({"remote_num_tokens"}, {1, kMostTokens}).value_or(0));
  parsed.source = KvSource{*address, std::move(engine), KvKey{*key, 0}};
  parsed.source->pushed = true;
  return parsed;
}

// Where both servers push over NIXL a request need not say so.
Result<TransferParams> read_nixl_push(const Json& params, const PeerList& peers, bool keep) {
  const std::string mode = params.text({"transfer_mode"}).value_or("push");
  if (mode != "push")
    return refuse("transfer_mode", "must be \"push\" with NixlConfig::pushes, is \"" + mode + "\"");
  TransferParams parsed;
  parsed.keep = keep;
  if (keep) return parsed;
  const auto address = read_address(params, peers);
  if (!address) return address.error();
  const auto key = read_name(params, "remote_request_id");
  if (!key) return key.error();
  const auto engine = read_name(params, "remote_engine_id");
  if (!engine) return engine.error();
  parsed.num_tokens =
      static_cast<int>(params.integer({"remote_num_tokens"}, {1, kMostTokens}).value_or(0));
  parsed.source = KvSource{*address, *engine, KvKey{*key, 0}};
  parsed.source->pushed = true;
  if (auto read = read_ranks(params, *parsed.source); !read) return read.error();
  return parsed;
}

Result<TransferParams> read_source(const Json& params, const PeerList& peers, KvPlane plane) {
  TransferParams parsed;
  const auto address = read_address(params, peers);
  if (!address) return address.error();
  const auto engine = read_name(params, "remote_engine_id");
  if (!engine) return engine.error();
  const auto key = read_name(params, "remote_request_id");
  if (!key) return key.error();
  const auto tokens = params.integer({"remote_num_tokens"}, {1, kMostTokens});
  if (!tokens) return refuse("remote_num_tokens", "is missing");
  const auto tp = params.integer({"tp_size"}, {1, kMostRanks});
  if (plane == KvPlane::local && tp.value_or(1) != 1)
    return refuse("tp_size", fmt::format("is {}; only 1 can be fetched from", *tp));
  KvKey prefill;
  prefill.key = *key;
  prefill.generation = static_cast<std::uint64_t>(
      params.find({"remote_registration_generation"})
          ? params.at("remote_registration_generation")
                .as_integer({0, std::numeric_limits<std::int64_t>::max()})
          : 0);
  parsed.num_tokens = *tokens;
  parsed.source = KvSource{*address, *engine, std::move(prefill)};
  if (plane == KvPlane::nixl)
    if (auto read = read_nixl_source(params, *parsed.source); !read) return read.error();
  return parsed;
}

}  // namespace

Result<TransferParams> parse_transfer_params(const std::string& json, const PeerList& peers,
                                             KvPlane plane, bool pushes) try {
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
  if (plane == KvPlane::mooncake && fetch) return read_mooncake_source(params, peers);
  if (plane == KvPlane::mooncake && keep) return read_mooncake_keep(params);
  if (pushes && (fetch || keep)) return read_nixl_push(params, peers, keep);
  const auto pushed = fetch || keep ? read_is_pushed(params) : Result<bool>(false);
  if (!pushed) return pushed.error();
  if (fetch)
    return *pushed ? read_pushed_source(params, peers, plane) : read_source(params, peers, plane);
  TransferParams parsed;
  parsed.keep = keep;
  if (keep && *pushed) {
    auto key = read_push_key(params, plane);
    if (!key) return key.error();
    parsed.push_key = std::move(*key);
  }
  return parsed;
} catch (const Failure& failure) {
  // "remote_block_ids[0][1]: …"
  const std::string& place = failure.error().field;
  const std::string member = place.substr(0, place.find_first_of(".["));
  return Error{ErrorCode::invalid_argument,
               (member.empty() ? "kv_transfer_params: " : "kv_transfer_params.") +
                   std::string(failure.what()),
               member.empty() ? "/kv_transfer_params" : "/kv_transfer_params/" + member};
}

Result<void> refuse_transfer(const std::string& json) {
  const auto params = parse_transfer_params(json, {});
  if (!params) return params.error();
  if (!params->keep) return {};
  return refuse("do_remote_decode", "needs a server with KvTransferConfig::role prefill or both");
}

std::string transfer_result(const KeptDescription& kept) {
  std::string json =
      "{\"do_remote_prefill\":true,\"do_remote_decode\":false,"
      "\"remote_block_ids\":[";
  for (std::size_t group = 0; group < kept.blocks.size(); ++group)
    json += fmt::format("{}[{}]", group > 0 ? "," : "", fmt::join(kept.blocks[group], ","));
  json += "],\"remote_engine_id\":";
  append_json_text(json, kept.engine);
  json += ",\"remote_request_id\":";
  append_json_text(json, kept.prefill.key);
  json += ",\"remote_host\":";
  append_json_text(json, kept.address.is_unix() ? kept.address.text() : kept.address.host);
  json += fmt::format(
      ",\"remote_port\":{},\"tp_size\":1,\"dcp_size\":1,\"pp_size\":1,\"remote_num_tokens\":{},"
      "\"remote_blocks_expiry_time\":null,\"remote_registration_generation\":{},"
      "\"transfer_mode\":\"{}\"",
      kept.address.port, kept.num_tokens, kept.prefill.generation, kept.pushed ? "push" : "pull");
  if (kept.prompt_hash) json += fmt::format(",\"quire_prompt_hash\":\"{:x}\"", *kept.prompt_hash);
  return json + "}";
}

}  // namespace quire
