// Holds what was allocated against what was planned.

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "engine/core/engine_plan.h"

namespace quire {

void check_allocated(const MemoryUses& planned, const MemoryUses& allocated) {
  for (std::size_t i = 0; i < kNumMemoryPurposes; ++i) {
    const auto purpose = static_cast<MemoryPurpose>(i);
    const MemoryUse& plan = planned[purpose];
    const MemoryUse& actual = allocated[purpose];
    if (plan == actual) continue;
    if (purpose != MemoryPurpose::graphs) {
      throw Failure(
          ErrorCode::internal,
          fmt::format("memory for {}: {} bytes planned and {} pinned, {} allocated and {} "
                      "pinned",
                      name_of(purpose), plan.device, plan.pinned, actual.device, actual.pinned));
    }
    if (actual.device > plan.device)
      log::warn("engine.graph_memory", {{"planned", plan.device}, {"allocated", actual.device}});
  }
}

}  // namespace quire
