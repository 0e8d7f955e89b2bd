#pragma once
// The requests that an engine has, by number, and what becomes of them when it is lost.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "engine/wire/messages.h"

namespace quire {

class GenerationBuffer;

struct LiveRequest {
  std::shared_ptr<GenerationBuffer> buffer;
  std::optional<AddRequest> request = {};  // to try again; not where it is not tried
};
using LiveRequests = std::unordered_map<RequestId, LiveRequest>;

// Takes a request over, moved from where it does. False: it ends.
using RetryRequest = std::function<bool(AddRequest&, const std::shared_ptr<GenerationBuffer>&)>;

// Of an engine that was lost: what nobody has seen any of is tried again, the others end with the
// error.
void retry_or_end(LiveRequests lost, const RetryRequest& retry, const std::string& error);

}  // namespace quire
