#pragma once
// What stands behind the pool: a larger, slower place for blocks that it reuses (host memory, a
// disk). The pool offers a block before it forgets it; the manager brings it back when a request's
// prefix needs it. Engine thread only.

#include <span>

#include "base/ids.h"
#include "engine/request/request.h"

namespace quire {

// What a block holds. The hash stands for all tokens up to the block's end, `tokens` are its own.
struct BlockContent {
  int group = 0;
  BlockHash hash = {};
  std::span<const TokenId> tokens = {};
};

class BlockTier {
 public:
  virtual ~BlockTier() = default;

  // The pool is about to reuse the block: all steps that wrote it have been launched.
  virtual void keep(BlockId block, const BlockContent& content) = 0;
  // It counts as a use.
  virtual bool holds(const BlockContent& content) = 0;
  // Into a block of the pool, before the next step reads it. False: it is not there any more, or
  // not what was kept; then it is forgotten.
  virtual bool restore(const BlockContent& content, BlockId block) = 0;
  virtual void clear() = 0;
};

}  // namespace quire
