#include "engine/client/live_requests.h"

#include "base/error.h"
#include "engine/client/generation_buffer.h"

namespace quire {

void retry_or_end(LiveRequests lost, const RetryRequest& retry, const std::string& error) {
  for (auto& [id, one] : lost) {
    if (one.request && one.buffer->restart() && retry(*one.request, one.buffer)) continue;
    one.buffer->finish(FinishReason::error, Error{ErrorCode::unavailable, error, {}});
  }
}

}  // namespace quire
