#include "engine/core/served_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/encoder.h"

namespace quire {
namespace {

[[noreturn]] void refuse(const std::string& field, const std::string& why) {
  throw Failure(Error{ErrorCode::invalid_argument, field + " " + why, field});
}

// Attention that looks ahead, and pooling that reads all of a prompt's hidden states, want the
// prompt in one step, computed anew.
void compute_whole_prompts(ServedModel& served) {
  EngineConfig& config = served.config;
  const ModelConfig& model = served.model;
  config.scheduler.enable_chunked_prefill = false;
  config.cache.enable_prefix_caching = false;
  if (!config.kv_events.endpoint.empty())
    refuse("KvEventsConfig::endpoint", "has no effect: this model keeps no prefix; remove it");
  if (config.kv_offload.is_on())
    refuse("KvOffloadConfig::host_bytes", "has no effect: this model keeps no prefix; remove it");
  const std::int64_t longest =
      config.model.max_model_len > 0 ? config.model.max_model_len : model.max_position_embeddings;
  int& budget = config.scheduler.max_num_batched_tokens;
  if (budget >= longest) return;
  budget = static_cast<int>(longest);
  served.notes.push_back(
      fmt::format("max_num_batched_tokens is {}: a prompt of this model is one step", longest));
}

void check(const EngineConfig& config) {
  if (config.speculative.method != DraftMethod::none)
    refuse("EngineConfig::speculative",
           "has no effect: a pooling model generates nothing; remove it");
  if (config.scheduler.target_itl_ms > 0)
    refuse("SchedulerConfig::target_itl_ms",
           "has no effect: a pooling model generates nothing; remove it");
  if (config.kv_transfer.role != KvRole::none)
    refuse("KvTransferConfig::role", "does not work with a pooling model: nobody goes on from it");
}

}  // namespace

ServedModel read_served_model(const EngineConfig& asked) {
  ServedModel served{asked, read_model_config(asked.model.path), {}};
  served.pooling = find_pooling(asked.model.path, served.model, asked.model.pooling);
  if (!served.pooling.pools()) return served;
  check(asked);
  // Nobody asks it for logits. Then there is no head to load beside the embedding.
  served.model.tie_word_embeddings = true;
  const int most = served.pooling.max_tokens;
  if (most > 0 && most < served.model.max_position_embeddings && asked.model.max_model_len == 0)
    served.config.model.max_model_len = most;
  if (is_encoder(served.model) && asked.parallel.tensor_parallel_size > 1)
    refuse("ParallelConfig::tensor_parallel_size", "does not work with " + served.model.architecture +
                                         ", whose layers are not divided among ranks; use 1");
  if (is_encoder(served.model) && asked.device == DeviceKind::cuda)
    refuse(
        "EngineConfig::device",
        "cuda: " + served.model.architecture +
            " runs with EngineConfig::device cpu only: attention that looks ahead is there alone");
  if (is_encoder(served.model) || served.pooling.type != PoolingType::last)
    compute_whole_prompts(served);
  return served;
}

}  // namespace quire
