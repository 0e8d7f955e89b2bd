#include "tests/engine/scheduler/flaky_peer.h"

#include "tests/engine/scheduler/random_scenario.h"

namespace quire::test {

std::optional<ExternalMatch> FlakyPeer::match(const Request& request, int num_computed) {
  if (chance(random_, 0.1)) return std::nullopt;
  if (!chance(random_, 0.3)) return ExternalMatch{};
  const int block_size = config_.scheduler_block_size;
  const int num_blocks = (request.num_tokens() - num_computed) / block_size;
  if (num_blocks == 0) return ExternalMatch{};
  const bool async = chance(random_, 0.6);
  answers_[request.id()] = {num_computed, async};
  return ExternalMatch{pick(random_, 1, num_blocks) * block_size, async};
}

FlakyPeer::Load FlakyPeer::load_of(const Request& request,
                                   const std::vector<std::span<const BlockId>>& blocks,
                                   int num_external) {
  Load load;
  load.id = request.id();
  load.first = answers_.at(request.id()).first;
  load.fails = chance(random_, 0.2);
  for (const auto& table : blocks) load.blocks.emplace_back(table.begin(), table.end());
  for (int i = 1; i <= num_external; ++i) {
    load.chains.push_back(chain_of(request, load.first + i));
  }
  return load;
}

void FlakyPeer::allocated(const Request& request,
                          const std::vector<std::span<const BlockId>>& blocks, int num_external) {
  if (num_external == 0) return;
  Load load = load_of(request, blocks, num_external);
  if (answers_.at(request.id()).async) {
    loads_.push_back(std::move(load));
  } else {
    deliver(load);
  }
}

// A failed load leaves one of its blocks as it was.
void FlakyPeer::deliver(const Load& load) {
  BlockId bad = kNullBlock;
  if (load.fails) {
    const int block_size = config_.groups[0].spec.block_size;
    const int last = load.first + static_cast<int>(load.chains.size()) - 1;
    bad = load.blocks[0][pick(random_, load.first, last) / block_size];
  }
  for (std::size_t g = 0; g < load.blocks.size(); ++g) {
    for (std::size_t i = 0; i < load.chains.size(); ++i) {
      const int position = load.first + static_cast<int>(i);
      const int block_size = config_.groups[g].spec.block_size;
      const BlockId block = load.blocks[g][position / block_size];
      if (block == kNullBlock || block == bad) continue;
      model_.store(static_cast<int>(g), block, position % block_size, load.chains[i]);
    }
  }
  if (bad == kNullBlock) return;
  invalid_.push_back(bad);
  model_.spoil(bad);
}

ReleaseDecision FlakyPeer::finished(const Request& request,
                                    const std::vector<std::span<const BlockId>>&) {
  if (request.finish_reason != FinishReason::length || !chance(random_, 0.3)) return {};
  sending_.push_back(request.id());
  return {true, "{}"};
}

FlakyPeer::News FlakyPeer::step() {
  News news;
  std::erase_if(loads_, [&](const Load& load) {
    if (!chance(random_, 0.4)) return false;
    deliver(load);
    news.received.push_back(load.id);
    return true;
  });
  std::erase_if(sending_, [&](RequestId id) {
    if (!chance(random_, 0.3)) return false;
    news.sent.push_back(id);
    return true;
  });
  std::swap(news.invalid, invalid_);
  return news;
}

}  // namespace quire::test
