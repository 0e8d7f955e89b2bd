#pragma once
// Between the blocks of the cache and the order in which prefills travel. Copies are queued on the
// device's stream; settle() waits for them. Engine thread only.

#include <span>
#include <vector>

#include "backend/device.h"
#include "base/ids.h"
#include "engine/kv_transfer/content/content.h"
#include "model/model.h"

namespace quire {

// A request's blocks, by group.
using BlockTable = std::vector<std::vector<BlockId>>;

class CachePages {
 public:
  // One cache per layer of the geometry. The device outlives this.
  CachePages(Device& device, std::vector<LayerCache> layers)
      : device_(device), layers_(std::move(layers)) {}
  virtual ~CachePages() = default;

  // False: a block of it is not there any more, and nothing was copied.
  virtual bool read(const KvContent& content, const BlockTable& blocks, std::span<std::byte> out);
  // Rows of tokens whose block the table lacks are left out. False: a state has no block.
  virtual bool write(const KvContent& content, const BlockTable& blocks,
                     std::span<const std::byte> bytes);
  // Blocks that the content fills only in part, and that nobody else may therefore read.
  std::vector<BlockId> partly_filled(const KvContent& content, const BlockTable& blocks,
                                     int from) const;
  void settle();
  int block_size(std::size_t group) const;  // tokens

 protected:
  bool has_all(const KvContent& content, const BlockTable& blocks) const;

 private:
  struct Run;
  template <class Visit>
  bool for_each_run(const KvContent& content, const BlockTable& blocks, Visit visit) const;

  Device& device_;
  const std::vector<LayerCache> layers_;
};

}  // namespace quire
