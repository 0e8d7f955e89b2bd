#pragma once
// The other ranks of a tensor-parallel engine, as rank 0 sees them: processes, or in tests threads.
// They wait for their configuration, which comes with the plan.

#include <functional>
#include <vector>

#include "backend/collectives.h"
#include "engine/request/engine_stats.h"
#include "engine/runner/rank_line.h"

namespace quire {

class RankGroup {
 public:
  // Ends them.
  virtual ~RankGroup() = default;
  virtual Collectives& collectives() = 0;
  virtual RankLine& line() = 0;
  // Of all, rank 0 first; its memory is the caller's to say.
  virtual std::vector<RankStats> stats() const = 0;
  // Called on any thread when one of them has ended: the line's fate says how.
  virtual void on_end(std::function<void()> wake) = 0;
};

}  // namespace quire
