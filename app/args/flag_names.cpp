#include "app/args/flag_names.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

namespace quire {
namespace {

struct Named {
  std::string_view field, flag;
};

// Flags that are not called like their fields.
constexpr std::array kNames = {
    Named{"CacheConfig::cache_dtype", "--kv-cache-dtype"},
    Named{"CacheConfig::hybrid_manager=false", "--disable-hybrid-kv-cache-manager"},
    Named{"CacheConfig::prefix_hash", "--prefix-caching-hash-algo"},
    Named{"CorsConfig::credentials", "--allow-credentials"},
    Named{"CorsConfig::origins", "--allowed-origins"},
    Named{"EngineConfig::speculative", "--speculative-config"},
    Named{"EngineGroupOptions::ready_timeout", "--engine-ready-timeout"},
    Named{"GraphConfig::capture_sizes", "--cudagraph-capture-sizes"},
    Named{"GraphConfig::max_capture_size", "--max-cudagraph-capture-size"},
    Named{"GraphConfig::only_decode", "--compilation-config"},
    Named{"HttpLimits::body_bytes_in_flight", "--max-body-bytes-in-flight"},
    Named{"HttpLimits::connections_per_address", "--max-connections-per-address"},
    Named{"KvEventsConfig::endpoint", "--kv-events-endpoint"},
    Named{"KvEventsConfig::buffer_steps", "--kv-events-buffer-steps"},
    Named{"KvEventsConfig::hash_seed", "--kv-events-hash-seed"},
    Named{"KvEventsConfig::high_water_mark", "--kv-events-hwm"},
    Named{"KvEventsConfig::int_hashes=false", "--kv-events-byte-hashes"},
    Named{"KvEventsConfig::replay_endpoint", "--kv-events-replay-endpoint"},
    Named{"KvEventsConfig::topic", "--kv-events-topic"},
    Named{"KvOffloadConfig::host_bytes", "--kv-offload-bytes"},
    Named{"KvOffloadConfig::path", "--kv-offload-path"},
    Named{"KvOffloadConfig::path_bytes", "--kv-offload-path-bytes"},
    Named{"KvTransferConfig::buffer_bytes", "--kv-transfer-buffer-bytes"},
    Named{"KvTransferConfig::lease_seconds", "--kv-lease-seconds"},
    Named{"KvTransferConfig::listen", "--kv-listen"},
    Named{"KvTransferConfig::load_failure_policy", "--kv-load-failure-policy"},
    Named{"KvTransferConfig::peers", "--kv-peer"},
    Named{"KvTransferConfig::plane", "--kv-plane"},
    Named{"KvTransferConfig::role", "--kv-role"},
    Named{"ModelOptions::path", "MODEL"},
    Named{"ModelOptions::served_name", "--served-model-name"},
    Named{"KvTransferConfig::peer_block_size", "--kv-peer-block-size"},
    Named{"NixlConfig::compare_hash", "--kv-compare-hash"},
    Named{"NixlConfig::library", "--nixl-library"},
    Named{"NixlConfig::peer_attention", "--kv-peer-attention"},
    Named{"NixlConfig::peer_model", "--kv-peer-model"},
    Named{"NixlConfig::profile", "--kv-transfer-profile"},
    Named{"NixlConfig::pushes", "--nixl-transfer-mode"},
    Named{"PoolingOptions::classifier_tokens", "--hf-overrides"},
    Named{"PoolingOptions::is_matryoshka", "--hf-overrides"},
    Named{"PoolingOptions::matryoshka_dimensions", "--hf-overrides"},
    Named{"PoolingOptions::type", "--pooler-config"},
    Named{"PoolingOptions::use_activation", "--pooler-config"},
    Named{"SchedulerConfig::policy", "--scheduling-policy"},
    Named{"ServerConfig::named_keys", "--api-key-file"},
    Named{"ServerConfig::stall_timeout", "--engine-stall-timeout"},
    Named{"SocketOptions::silence", "--engine-timeout"},
    Named{"SocketOptions::tls", "--engine-ssl-*"},
    Named{"TextDefaults::dialect", "--tool-call-parser"},
    Named{"TextDefaults::reasoning", "--reasoning-parser"},
    Named{"TextDefaults::template_was_given", "--chat-template"},
    Named{"TlsContext::Files::authorities", "--engine-ssl-ca-certs"},
    Named{"TlsContext::Files::certificate", "--engine-ssl-certfile"},
    Named{"TlsContext::Files::key", "--engine-ssl-keyfile"},
};

struct Structure {
  std::string_view name;
  std::string_view prefix = {};  // of its fields' flags
};
constexpr std::array kStructures = {
    Structure{"CacheConfig"},     Structure{"CorsConfig", "allowed-"},
    Structure{"EngineConfig"},    Structure{"GraphConfig"},
    Structure{"HttpLimits"},      Structure{"LoadOptions"},
    Structure{"ModelOptions"},    Structure{"ParallelConfig"},
    Structure{"PoolingOptions"},  Structure{"ProxyOptions"},
    Structure{"SchedulerConfig"}, Structure{"ServerConfig"},
    Structure{"TextDefaults"},
};

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// "block_size" or "enable_prefix_caching=false" → "--block-size", "--no-enable-prefix-caching"
std::string flag_like(std::string_view prefix, std::string_view member) {
  constexpr std::string_view kOff = "=false";
  const bool off = member.ends_with(kOff);
  if (off) member.remove_suffix(kOff.size());
  std::string flag = off ? "--no-" : "--";
  flag += prefix;
  flag += member;
  std::ranges::replace(flag, '_', '-');
  return flag;
}

std::optional<std::string> flag_of(std::string_view field) {
  const auto* named = std::ranges::find(kNames, field, &Named::field);
  if (named != kNames.end()) return std::string(named->flag);
  const std::size_t colons = field.rfind("::");
  const auto* in = std::ranges::find(kStructures, field.substr(0, colons), &Structure::name);
  if (in == kStructures.end()) return std::nullopt;
  return flag_like(in->prefix, field.substr(colons + 2));
}

// The field whose "::" stands at `colons`, by its two ends.
std::pair<std::size_t, std::size_t> around(std::string_view text, std::size_t colons) {
  std::size_t begin = colons, end = colons;
  while (begin > 0 && is_word(text[begin - 1])) --begin;
  while (text.substr(end).starts_with("::"))
    for (end += 2; end < text.size() && is_word(text[end]);) ++end;
  if (text.substr(end).starts_with("=false")) end += std::string_view("=false").size();
  return {begin, end};
}

}  // namespace

std::string with_flags(std::string text) {
  for (std::size_t at = text.find("::"); at != std::string::npos; at = text.find("::", at)) {
    const auto [begin, end] = around(text, at);
    const auto flag = flag_of(std::string_view(text).substr(begin, end - begin));
    if (flag) text.replace(begin, end - begin, *flag);
    at = flag ? begin + flag->size() : end;
  }
  return text;
}

}  // namespace quire
