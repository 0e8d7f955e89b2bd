#pragma once
// What the scheduler asks of a KV transfer: who has a request's prefix already, where to put it,
// and whether a finished request's blocks are still being read by someone else. Engine thread only;
// the data plane reports through TransferNews.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "engine/request/request.h"

namespace quire {

struct ExternalMatch {
  int num_tokens = 0;  // beyond those computed here
  bool async = false;  // the load takes several steps: the request waits for it outside the batch
};

struct ReleaseDecision {
  bool keep_blocks = false;  // until the data plane reports the request as sent
  std::string result;        // for the client, as JSON; empty: none
};

class Connector {
 public:
  virtual ~Connector() = default;

  // Tokens available elsewhere, following the first num_computed. Empty: not known yet, ask again.
  virtual std::optional<ExternalMatch> match(const Request& request, int num_computed) = 0;

  // The request has its blocks (by group); num_external tokens are to be loaded into them.
  virtual void allocated(const Request& request,
                         const std::vector<std::span<const BlockId>>& blocks, int num_external) = 0;

  // After a step: so many tokens of the request's prompt are in its blocks.
  virtual void computed(const Request&, const std::vector<std::span<const BlockId>>&, int) {}
  // Whether it wants to be told.
  virtual bool follows(const Request&) const { return false; }

  // The request ended (see finish_reason).
  virtual ReleaseDecision finished(const Request& request,
                                   const std::vector<std::span<const BlockId>>& blocks) = 0;

  // Of a request whose load has ended: blocks that hold only a part of their tokens, so that no
  // later request may find them.
  virtual std::span<const BlockId> unshareable(const Request&) { return {}; }
};

}  // namespace quire
