#pragma once
// Attention that reads only the last tokens: a sliding window, or the current chunk. Blocks that no
// later token reads are given back while the request runs.

#include "engine/kv_cache/group_manager.h"

namespace quire {

class WindowGroup final : public GroupManager {
 public:
  using GroupManager::GroupManager;
  int skipped_tokens(int computed) const override;
  int quiet_until(const GroupTable& table) const override;
};

class ChunkedGroup final : public GroupManager {
 public:
  using GroupManager::GroupManager;
  int skipped_tokens(int computed) const override;
  int quiet_until(const GroupTable& table) const override;
};

}  // namespace quire
