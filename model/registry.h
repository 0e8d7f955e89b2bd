#pragma once
// From a folder to a model: model/architectures.h says which there are.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "backend/device.h"
#include "backend/ops_traits.h"
#include "model/config.h"
#include "model/load_format.h"
#include "model/model.h"
#include "model/shard.h"

namespace quire {

struct LoadOptions {
  DType dtype = DType::bf16;  // of weights and hidden states
  LoadFormat load_format = LoadFormat::safetensors;
  std::uint64_t seed = 0;         // of dummy weights
  std::string quantization = {};  // must be the checkpoint's method; empty: whatever it is
  int max_model_len = 0;          // rope tables reach so far; 0: max_position_embeddings
  std::optional<DType> cache_dtype = {};  // of keys and values; none: as dtype
  Shard shard = {};               // of the ranks that divide the model
  bool same_bits = false;         // of a token, however many are computed with it
  std::function<void(std::size_t bytes)> progress = {};  // of weights, so far
  bool measure = false;  // on a MeasuringDevice: a model that only answers for its sizes
};

// Throws Failure on an unsupported architecture, on files that lie, lack or contradict, and on a
// number of ranks that cannot divide the model: that one names those that can.
std::unique_ptr<Model> load_model(const ModelConfig& config, const std::filesystem::path& model_dir,
                                  Device& device, const OpsTraits& ops, const LoadOptions& options);

// Whether so many ranks can each have a part: the parts are made, without their numbers.
bool can_divide(const ModelConfig& config, const std::filesystem::path& model_dir,
                bool is_host_memory, const OpsTraits& ops, LoadOptions options, int size);

}  // namespace quire
