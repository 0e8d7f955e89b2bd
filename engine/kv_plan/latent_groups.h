#pragma once
// DeepSeek-V4: compressed latents, windowed latents and compressor states of several page sizes in
// one model. Pages are not made equal; the pool has a set of tensors per page size instead.

#include <vector>

#include "engine/kv_plan/groups.h"

namespace quire {

PlanResult<std::vector<KvGroup>> make_latent_groups(const std::vector<LayerKvSpec>& layers,
                                                    bool use_eagle);

// Layers of the most frequent page size.
std::size_t longest_page_run(const KvGroup& group);

// n ≥ at_least for which rounding every count up to a multiple of n wastes least; ties: the larger.
std::size_t least_padding(const std::vector<std::size_t>& counts, std::size_t at_least);

}  // namespace quire
