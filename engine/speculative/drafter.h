#pragma once
// Proposals of what a request's next tokens are, made on the host from what it has. Whatever is
// proposed, the output is the one without proposals: each position is drawn from the target with
// its own noise, and a draft holds only while it is what was drawn. Engine thread only.

#include <vector>

#include "base/ids.h"
#include "engine/request/request.h"

namespace quire {

class Drafter {
 public:
  virtual ~Drafter() = default;
  // Fills drafts with at most max_drafts tokens to follow the request's, or none.
  virtual void propose(const Request& request, int max_drafts, std::vector<TokenId>& drafts) = 0;
};

}  // namespace quire
