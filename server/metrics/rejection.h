#pragma once
// What the engines have refused, for the metrics.

#include <optional>

#include "engine/client/engine_group.h"
#include "server/metrics/metrics.h"

namespace quire {

// Of a request that was refused as overloaded, by the engine that it named or by all.
inline Rejection why_rejected(const EngineGroup& engines, std::optional<EngineId> wanted) {
  const bool is_up =
      wanted ? engines.is_up(*wanted) : engines.state() == EngineGroupState::ready;
  return is_up ? Rejection::queue_full : Rejection::no_engine;
}

}  // namespace quire
