#include "engine/kv_transfer/mooncake_params.h"

#include <fmt/format.h>

#include "base/json_text.h"
#include "engine/kv_mooncake/bootstrap.h"

namespace quire {
namespace {

constexpr std::size_t kLeastName = 16, kMostText = 256;

Error refuse(const std::string& member, const std::string& why) {
  return {ErrorCode::invalid_argument, "kv_transfer_params." + member + " " + why,
          "/kv_transfer_params/" + member};
}

Result<std::string> read_name(const Json& params, const char* member, std::size_t least) {
  auto text = params.text({member});
  if (!text) return refuse(member, "is missing");
  if (text->size() < least || text->size() > kMostText)
    return refuse(member, fmt::format("must have {} to {} bytes", least, kMostText));
  return std::move(*text);
}

// A server that knows it may have the prompt's keys and values written to it.
Result<std::string> read_transfer(const Json& params) {
  return read_name(params, "transfer_id", kLeastName);
}

}  // namespace

Result<TransferParams> read_mooncake_keep(const Json& params) {
  TransferParams parsed;
  parsed.keep = true;
  if (!params.has({"transfer_id"})) return parsed;
  auto transfer = read_transfer(params);
  if (!transfer) return transfer.error();
  parsed.kept_name = std::move(*transfer);
  return parsed;
}

Result<TransferParams> read_mooncake_source(const Json& params, const PeerList& peers) {
  const auto place = read_name(params, "remote_bootstrap_addr", 1);
  if (!place) return place.error();
  const auto address = parse_bootstrap_address(*place);
  if (!address) return refuse("remote_bootstrap_addr", "must be http://HOST:PORT, is " + *place);
  if (!peers.allows(*address))
    return refuse("remote_bootstrap_addr",
                  fmt::format("is {}, which is not among those that this server may fetch from "
                              "(KvTransferConfig::peers {})",
                              address->text(), peers.names()));
  auto engine = read_name(params, "remote_engine_id", 1);
  if (!engine) return engine.error();
  auto transfer = read_transfer(params);
  if (!transfer) return transfer.error();
  TransferParams parsed;
  parsed.source = KvSource{*address, std::move(*engine), KvKey{std::move(*transfer), 0}};
  return parsed;
}

std::string mooncake_result(const KeptDescription& kept) {
  const bool is_v6 = kept.address.host.find(':') != std::string::npos;
  std::string json =
      "{\"do_remote_prefill\":true,\"do_remote_decode\":false,\"remote_bootstrap_addr\":";
  append_json_text(json, fmt::format(fmt::runtime(is_v6 ? "http://[{}]:{}" : "http://{}:{}"),
                                     kept.address.host, kept.address.port));
  json += ",\"remote_engine_id\":";
  append_json_text(json, kept.engine);
  json += ",\"transfer_id\":";
  append_json_text(json, kept.prefill.key);
  return json + "}";
}

}  // namespace quire
