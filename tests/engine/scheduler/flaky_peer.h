#pragma once
// A peer that has some prefixes. Loads happen within the step or take a few, and some fail.

#include <map>
#include <random>
#include <set>

#include "engine/kv_transfer/connector.h"
#include "tests/engine/scheduler/simulated_model.h"

namespace quire::test {

class FlakyPeer final : public Connector {
 public:
  FlakyPeer(const KvCacheConfig& config, SimulatedModel& model, std::uint64_t seed)
      : config_(config), model_(model), random_(seed) {}

  std::optional<ExternalMatch> match(const Request& request, int num_computed) override;
  void allocated(const Request& request, const std::vector<std::span<const BlockId>>& blocks,
                 int num_external) override;
  ReleaseDecision finished(const Request& request,
                           const std::vector<std::span<const BlockId>>& blocks) override;

  // What the data plane has to report with the next commit.
  struct News {
    std::vector<RequestId> received, sent;
    std::vector<BlockId> invalid;
    TransferNews view() const { return {received, sent, invalid}; }
  };
  News step();

 private:
  struct Load {
    RequestId id;
    std::vector<std::vector<BlockId>> blocks;  // by group
    std::vector<PrefixChain> chains;           // of the loaded tokens
    int first = 0;
    bool fails = false;
  };

  Load load_of(const Request& request, const std::vector<std::span<const BlockId>>& blocks,
               int num_external);
  void deliver(const Load& load);

  const KvCacheConfig& config_;
  SimulatedModel& model_;
  std::mt19937_64 random_;
  struct Answer {
    int first = 0;
    bool async = false;
  };
  std::map<RequestId, Answer> answers_;
  std::vector<Load> loads_;
  std::vector<RequestId> sending_;
  std::vector<BlockId> invalid_;
};

}  // namespace quire::test
