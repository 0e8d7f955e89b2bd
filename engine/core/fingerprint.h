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

// Of a draft model's weights and method; empty where drafts come without one.
std::string draft_fingerprint(const SpeculativeConfig& drafts);
// Of the weight files alone, in whatever dtype they are loaded. A draft's config may name that of
// the target that it was trained for ("target_fingerprint"): throws Failure naming the field where
// the target is another. Dummy weights are anybody's.
std::string weights_fingerprint(const std::string& model_path);
void check_draft_target(const EngineConfig& config);

// Of the blocks of an engine on such a device, for a later one there: the model's and its drafts',
// when their files were written, and what each layer stores. Not made to be read.
std::string cache_fingerprint(const EngineConfig& config, const std::string& model,
                              const std::string& device, int hash_block_size,
                              std::span<const LayerCache> layers);

}  // namespace quire
