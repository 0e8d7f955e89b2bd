#pragma once
// Which of a group's engines gets a request. Any thread.

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "engine/client/engine_client.h"
#include "engine/client/prefix_memory.h"

namespace quire {

class EngineChoice {
 public:
  using Tried = std::vector<bool>;  // by rank: what has refused this request

  // `engines` outlive it.
  EngineChoice(const Engines& engines, bool prefixes_are_cached)
      : engines_(engines), prefixes_are_cached_(prefixes_are_cached) {}

  // Tokens of a cached block; before that prefixes say nothing.
  void set_block_size(int tokens) { block_size_ = tokens; }

  // Chooses among engines that are ready and were not tried, and marks the choice as tried; null:
  // there is none. Takes the one that had the prompt's beginning last, if that is a good part of it
  // and the engine has hardly more to do; else the least loaded one, in turn among equals.
  EngineClient* next(const AddRequest& request, Tried& tried);

  // The engine has taken it.
  void remember(const AddRequest& request, const EngineClient& engine);
  void forget() { prefixes_.forget(); }  // what engines had cached is gone

 private:
  EngineClient* holder_of(const AddRequest& request, const Tried& tried, int least_load) const;
  bool follows_prefixes() const {
    return prefixes_are_cached_ && engines_.size() > 1 && block_size_ > 0;
  }

  const Engines& engines_;
  const bool prefixes_are_cached_;
  std::atomic<int> block_size_{0};
  std::atomic<std::size_t> next_{0};
  PrefixMemory prefixes_;
};

}  // namespace quire
