#pragma once
// The front end's view over all engines of one model, and the rules that make it.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/wire/messages.h"

namespace quire {

struct ReadyInfo {
  int max_model_len = 0;  // tokens, the smallest over engines
  int block_size = 0;     // tokens, equal on all engines
  int vocab_size = 0;     // 0: no engine says
  std::string dtype;
  std::string dp_stats_address;  // empty: none
  std::vector<Ready> engines;    // by rank
  std::int64_t total_gpu_blocks() const;
  std::int64_t total_kv_cache_size_tokens() const;
};

// Whether engines like these can take the request: its prompt, its parameters.
Result<void> check_prompt(const AddRequest& request, const ReadyInfo& ready);

// The error names the engines that differ. engines is not empty.
Result<ReadyInfo> merge_ready(std::vector<Ready> engines);

}  // namespace quire
