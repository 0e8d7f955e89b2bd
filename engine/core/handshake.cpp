#include "engine/core/handshake.h"

#include <vector>

#include "engine/kv_cache/group_manager.h"
#include "model/kv_spec.h"

namespace quire {
namespace {

// As KvGroup::page_bytes, without padding.
std::int64_t unpadded_page_bytes_of(const KvGroup& group) {
  if (!group.per_layer_specs) return static_cast<std::int64_t>(unpadded_page_bytes(group.spec));
  std::int64_t sum = 0;
  for (const KvSpec& spec : group.layer_specs) {
    sum += static_cast<std::int64_t>(unpadded_page_bytes(spec));
  }
  return sum;
}

std::vector<MemoryUseInfo> memory_infos(const EnginePlan& plan, const MemoryUses& allocated) {
  std::vector<MemoryUseInfo> infos;
  for (std::size_t i = 0; i < kNumMemoryPurposes; ++i) {
    const auto purpose = static_cast<MemoryPurpose>(i);
    const MemoryUse& planned = plan.uses[purpose];
    const MemoryUse& actual = allocated[purpose];
    if (planned == MemoryUse{} && actual == MemoryUse{}) continue;
    infos.push_back({.purpose = std::string(name_of(purpose)),
                     .planned_bytes = static_cast<std::int64_t>(planned.device),
                     .allocated_bytes = static_cast<std::int64_t>(actual.device),
                     .pinned_bytes = static_cast<std::int64_t>(actual.pinned)});
  }
  if (plan.mapped_bytes > 0)
    infos.push_back({.purpose = "mapped_weights",
                     .planned_bytes = plan.mapped_bytes,
                     .allocated_bytes = plan.mapped_bytes});
  return infos;
}

}  // namespace

Ready make_ready(const EngineIdentity& identity, const EnginePlan& engine_plan,
                 const MemoryUses& allocated) {
  const ModelPlan& plan = *engine_plan.model;
  Ready ready;
  ready.engine = identity.engine;
  ready.version = quire_version();
  ready.max_model_len = static_cast<int>(plan.kv.max_model_len);
  ready.num_gpu_blocks = static_cast<int>(plan.kv.num_blocks);
  ready.block_size = plan.kv.block_size;
  for (const KvGroup& group : plan.kv.groups()) {
    ready.groups.push_back({.kind = std::string(kind_name(group.spec.kind)),
                            .block_size = group.block_size,
                            .kernel_block_size = group.kernel_block_size,
                            .page_bytes = static_cast<std::int64_t>(group.page_bytes),
                            .layers = static_cast<int>(group.layers.size()),
                            .unpadded_page_bytes = unpadded_page_bytes_of(group)});
    if (keeps_state(group.spec.kind)) {
      ready.mamba_cache_mode = name_of(plan.state_cache_mode);
    }
  }
  ready.kv_cache_size_tokens = plan.kv.kv_cache_size_tokens;
  ready.max_concurrency = plan.kv.max_concurrency;
  ready.dtype = name_of(identity.dtype);
  ready.kv_cache_dtype = name_of(plan.cache_dtype);
  ready.model_fingerprint = identity.model_fingerprint;
  ready.device = identity.device;
  ready.vocab_size = identity.vocab_size;
  ready.startup_seconds = identity.startup_seconds;
  ready.memory = memory_infos(engine_plan, allocated);
  return ready;
}

}  // namespace quire
