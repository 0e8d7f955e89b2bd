#pragma once
// What happens to cached blocks, for routers that look for the engine with the longest prefix.

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "engine/kv_hash/block_hash.h"
#include "engine/request/request.h"

namespace quire {

// A block's hash, as one or more hashes of finer blocks.
using EventHash = std::vector<Sha256>;

struct BlockStored {
  std::vector<EventHash> hashes;
  std::optional<EventHash> parent;  // of the block before token_ids; none at the prompt's start
  std::vector<TokenId> token_ids;   // of the whole range, blocks that were not stored included
  int block_size = 0;               // tokens
  std::optional<int> lora_id;
  std::string lora_name;
  int group = 0;
  std::vector<std::vector<ExtraKey>> extra_keys;  // for each hash
};

struct BlockRemoved {
  EventHash hash;
  int group = 0;
};

struct AllBlocksCleared {};

using KvEvent = std::variant<BlockStored, BlockRemoved, AllBlocksCleared>;

}  // namespace quire
