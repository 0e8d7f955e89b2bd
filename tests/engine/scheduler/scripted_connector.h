#pragma once
// A KV transfer that does what a test wrote down for each request.

#include <map>

#include "engine/kv_transfer/connector.h"

namespace quire::test {

struct TransferScript {
  int num_external = 0;  // tokens from the prompt's start that a peer has
  bool async = false;
  int unknown_until = 0;  // step before which the answer is "not known yet"
  bool keep_at_end = false;
  int num_loads = 1;  // later it has nothing
};

class ScriptedConnector final : public Connector {
 public:
  std::optional<ExternalMatch> match(const Request& request, int num_computed) override;
  void allocated(const Request& request, const std::vector<std::span<const BlockId>>& blocks,
                 int num_external) override;
  ReleaseDecision finished(const Request& request,
                           const std::vector<std::span<const BlockId>>& blocks) override;

  std::map<RequestId, TransferScript> scripts;
  int step = 0;
  int num_matched_calls = 0;

 private:
  std::map<RequestId, int> loads_;  // so far
};

}  // namespace quire::test
