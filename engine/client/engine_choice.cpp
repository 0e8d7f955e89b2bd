#include "engine/client/engine_choice.h"

#include <algorithm>
#include <utility>

namespace quire {

namespace {

// A prefix is worth a detour where it is this part of the prompt at least.
constexpr std::size_t kWorthwhilePart = 4;

// Tokens that need not be computed again are worth sharing an engine with one request more.
constexpr std::size_t kTokensPerRequest = 256;

// Requests that an engine may have more than the least loaded one, for the sake of a prefix.
int detour(std::size_t tokens, int least_load) {
  const int worth = static_cast<int>(std::min<std::size_t>(tokens / kTokensPerRequest, 1000));
  return std::min(worth, std::max(2, least_load / 4));
}

}  // namespace

EngineClient* EngineChoice::next(const AddRequest& request, Tried& tried) {
  const std::size_t first = next_++ % engines_.size();
  EngineClient* best = nullptr;
  EngineLoad best_load;
  for (std::size_t i = 0; i < engines_.size(); ++i) {
    EngineClient& candidate = *engines_[(first + i) % engines_.size()];
    if (tried[candidate.id().value] || candidate.state() != EngineState::ready) continue;
    const EngineLoad load = candidate.load();
    if (best != nullptr && !(load < best_load)) continue;
    best = &candidate;
    best_load = load;
  }
  if (best == nullptr) return nullptr;
  if (EngineClient* const holder = holder_of(request, tried, best_load.requests)) best = holder;
  tried[best->id().value] = true;
  return best;
}

EngineClient* EngineChoice::holder_of(const AddRequest& request, const Tried& tried,
                                      int least_load) const {
  if (!follows_prefixes()) return nullptr;
  const auto match = prefixes_.find(request.prompt, request.cache_salt, block_size_);
  if (!match || match->tokens * kWorthwhilePart < request.prompt.size()) return nullptr;
  EngineClient& holder = *engines_[match->holder.engine.value];
  const bool has_it = holder.state() == EngineState::ready && holder.life() == match->holder.life;
  if (!has_it || tried[holder.id().value]) return nullptr;
  return holder.load().requests <= least_load + detour(match->tokens, least_load) ? &holder : nullptr;
}

void EngineChoice::remember(const AddRequest& request, const EngineClient& engine) {
  if (!follows_prefixes()) return;
  prefixes_.remember(request.prompt, request.cache_salt, block_size_, {engine.id(), engine.life()});
}

}  // namespace quire
