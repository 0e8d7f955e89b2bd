#include "engine/kv_cache/window_group.h"

#include <algorithm>

namespace quire {
int WindowGroup::skipped_tokens(int computed) const {
  return std::max(0, computed - config_.spec.sliding_window + 1);
}

int WindowGroup::quiet_until(const GroupTable& table) const {
  const int next_gone = (table.num_skipped + 1) * block_size() + config_.spec.sliding_window - 1;
  return std::min(GroupManager::quiet_until(table), next_gone - 1);
}

int ChunkedGroup::skipped_tokens(int computed) const {
  const int chunk = config_.spec.attention_chunk_size;
  return computed / chunk * chunk;
}

int ChunkedGroup::quiet_until(const GroupTable& table) const {
  const int chunk = config_.spec.attention_chunk_size;
  const int first_kept = table.num_skipped * block_size();
  return std::min(GroupManager::quiet_until(table), (first_kept / chunk + 1) * chunk - 1);
}

}  // namespace quire
