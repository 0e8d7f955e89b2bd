#include "engine/client/group_errors.h"

#include <string>

namespace quire {

Error draining_error() { return {ErrorCode::unavailable, "the server is shutting down", {}}; }

Error too_many_error(std::int64_t requests, std::int64_t most) {
  return {ErrorCode::invalid_argument,
          "n times the number of prompts is " + std::to_string(requests) + ", but at most " +
              std::to_string(most) +
              " requests can run and wait (SchedulerConfig::max_num_seqs, "
              "SchedulerConfig::max_num_queued_reqs)",
          "n"};
}

Error queue_full_error(int max_queued) {
  return {ErrorCode::overloaded,
          std::to_string(max_queued) +
              " requests may wait, and that many do (SchedulerConfig::max_num_queued_reqs)",
          {}};
}

}  // namespace quire
