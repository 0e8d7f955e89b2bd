#include "engine/kv_nixl/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "base/utf8.h"
#include "engine/kv_hash/event_hash.h"

namespace quire {
namespace {

// The newest first.
constexpr std::array kProfiles = {
    NixlProfile{.name = "vllm-0.33.0",
                .vllm_version = "0.33.0",
                .connector_version = 15,
                .layout = "LBHNC"},
    NixlProfile{.name = "vllm-0.31.0",
                .vllm_version = "0.31.0",
                .connector_version = 13,
                .layout = "LBHNC"},
    NixlProfile{.name = "vllm-0.28.0",
                .vllm_version = "0.28.0",
                .connector_version = 7,
                .layout = "HND",
                .has_strides = false,
                .hashes_cross_layers = true},
    NixlProfile{.name = "vllm-0.25.1",
                .vllm_version = "0.25.1",
                .connector_version = 4,
                .layout = "HND",
                .asks_pipeline_rank = false,
                .answers_clock = false,
                .packs_keys_and_values = false,
                .has_strides = false,
                .hashes_cross_layers = true,
                .hashes_transfer_mode = false},
};

// As Python's json.dumps writes it: everything beyond ASCII as \u escapes, of UTF-16.
std::string python_json_text(std::string_view text) {
  std::string out = "\"";
  for_each_char(text, [&out](char32_t c, std::string_view) {
    const auto code = static_cast<std::uint32_t>(c);
    if (code == '"' || code == '\\') {
      out += {'\\', static_cast<char>(code)};
    } else if (constexpr std::string_view kNamed = "\b\f\n\r\t";
               code < 0x20 && kNamed.find(static_cast<char>(code)) != std::string_view::npos) {
      out += {'\\', "bfnrt"[kNamed.find(static_cast<char>(code))]};
    } else if (code >= 0x20 && code < 0x7f) {
      out += static_cast<char>(code);
    } else if (code < 0x10000) {
      out += fmt::format("\\u{:04x}", code);
    } else {
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((code - 0x10000) >> 10),
                         0xdc00 + ((code - 0x10000) & 0x3ff));
    }
  });
  return out + "\"";
}

// Of a draft model that sees the target's hidden states, which has no revision of its own.
std::string draft_json(const CompatibilityFactors& factors) {
  if (factors.draft_method.empty()) return "null";
  return fmt::format(
      R"({{"auxiliary_layer_ids": null, "code_revision": null, "kv_cache_dtype": {}, )"
      R"("method": {}, "model": {}, "parallel_drafting": false, "revision": null}})",
      python_json_text(factors.cache_dtype), python_json_text(factors.draft_method),
      python_json_text(factors.draft_model));
}

}  // namespace

std::span<const NixlProfile> nixl_profiles() { return kProfiles; }

Result<NixlProfile> find_nixl_profile(std::string_view name) {
  if (name.empty()) return kProfiles.front();
  const auto found = std::ranges::find(kProfiles, name, &NixlProfile::name);
  if (found != kProfiles.end()) return *found;
  std::string known;
  for (const NixlProfile& profile : kProfiles)
    known += (known.empty() ? "" : ", ") + std::string(profile.name);
  return Error{ErrorCode::invalid_argument,
               fmt::format("NixlConfig::profile \"{}\" is none of {}", name, known),
               "NixlConfig::profile"};
}

std::string compatibility_json(const CompatibilityFactors& factors, const NixlProfile& profile) {
  const auto boolean = [](bool value) { return value ? "true" : "false"; };
  std::map<std::string, std::string> members = {
      {"attn_backend_name", python_json_text(factors.attention_backend)},
      {"cache_dtype", python_json_text(factors.cache_dtype)},
      {"dtype", python_json_text(factors.dtype)},
      {"head_size", fmt::format("{}", factors.head_size)},
      {"is_hma_enabled", boolean(factors.hybrid_manager)},
      {"model", python_json_text(factors.model)},
      {"nixl_connector_version", fmt::format("{}", factors.connector_version)},
      {"num_hidden_layers", fmt::format("{}", factors.num_hidden_layers)},
      {"num_kv_heads", fmt::format("{}", factors.num_kv_heads)},
      {"vllm_version", python_json_text(factors.vllm_version)}};
  if (profile.hashes_cross_layers)
    members["cross_layers_blocks"] = boolean(factors.cross_layers_blocks);
  if (profile.hashes_transfer_mode) {
    members["speculative_config"] = draft_json(factors);
    members["transfer_mode"] = factors.pushes ? "\"push\"" : "\"pull\"";
  }
  std::string json = "{";
  for (const auto& [name, value] : members)
    json += fmt::format("{}\"{}\": {}", json.size() > 1 ? ", " : "", name, value);
  return json + "}";
}

std::string compatibility_hash(const CompatibilityFactors& factors, const NixlProfile& profile) {
  const std::string json = compatibility_json(factors, profile);
  const auto digest = sha256({reinterpret_cast<const std::uint8_t*>(json.data()), json.size()});
  std::string text;
  for (const std::uint8_t byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace quire
