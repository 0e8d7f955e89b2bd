#pragma once
// What weights, keys and values are worth to somebody else: equal where they mean the same.

#include <cstdint>
#include <span>
#include <string>

#include "engine/config.h"
#include "model/config.h"
#include "model/model.h"

namespace quire {

// Equal for equal weights in an equal dtype: a hash over config.json, weight files (of those above
// 64 MiB the headers and samples), and where rope scaling depends on the longest context, that.
// Engines compare it before they answer for one model or exchange KV.
std::string model_fingerprint(const EngineConfig& config, const ModelConfig& model, DType dtype,
                              std::int64_t longest_context);

// A hash of a draft model's weights and method; empty where drafts come without one.
std::string draft_fingerprint(const SpeculativeConfig& drafts);
// A hash of the weight files alone, in whatever dtype they are loaded.
std::string weights_fingerprint(const std::string& model_path);
// Throws Failure naming the field where a draft's config names another target than the one it is
// used with ("target_fingerprint"). Dummy weights fit any.
void check_draft_target(const EngineConfig& config);

// Says which blocks on disk a later engine on such a device may use: it holds the model's and the
// drafts' fingerprints, when their files were written, and what each layer stores. Not for people.
std::string cache_fingerprint(const EngineConfig& config, const std::string& model,
                              const std::string& device, int hash_block_size,
                              std::span<const LayerCache> layers);

}  // namespace quire
