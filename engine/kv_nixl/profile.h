#pragma once
// Releases of vLLM whose NIXL connector is spoken here. Its protocol has a number that grows with
// each change; nobody says it before the hashes are compared, so it is a setting. Pure.

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace quire {

struct NixlProfile {
  std::string_view name;  // "vllm-0.33.0"
  std::string_view vllm_version;
  int connector_version = 0;
  std::string_view layout;  // what its blocks' order is called
  // The tuple of a question for metadata has a pipeline rank before the tensor-parallel one.
  bool asks_pipeline_rank = true;
  bool answers_clock = true;  // a second frame: the answering process's time
  // Keys and values lie side by side for each token. Before: all of a block, keys first.
  bool packs_keys_and_values = true;
  bool has_strides = true;  // and everything that came with them
  bool hashes_cross_layers = false;
  bool hashes_transfer_mode = true;  // and speculative_config

  bool has_push() const { return hashes_transfer_mode; }  // its NixlPushConnector
};

std::span<const NixlProfile> nixl_profiles();
// Empty text: the newest. The error lists those that are known.
Result<NixlProfile> find_nixl_profile(std::string_view name);

// What two servers must have in common before either reads the other's metadata.
struct CompatibilityFactors {
  std::string vllm_version;
  int connector_version = 0;
  std::string model;
  std::string dtype;  // "torch.bfloat16"
  int num_kv_heads = 0;
  int head_size = 0;
  int num_hidden_layers = 0;
  std::string attention_backend;
  std::string cache_dtype = "auto";
  std::string draft_method = {}, draft_model = {};  // as --speculative-config has them
  bool hybrid_manager = true;
  bool cross_layers_blocks = false;
  bool pushes = false;  // whoever prefills writes, instead of being read
};
// The text whose SHA-256 is compared, and that in hexadecimal digits.
std::string compatibility_json(const CompatibilityFactors& factors, const NixlProfile& profile);
std::string compatibility_hash(const CompatibilityFactors& factors, const NixlProfile& profile);

}  // namespace quire
