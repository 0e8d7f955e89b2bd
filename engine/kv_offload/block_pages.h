#pragma once
// A block's bytes in all layers of its group, page after page. Copies are queued on the device's
// stream, between the steps before and after. Engine thread only.

#include <cstddef>
#include <span>
#include <vector>

#include "backend/device.h"
#include "base/ids.h"
#include "model/model.h"

namespace quire {

class BlockPages {
 public:
  // The device outlives this.
  BlockPages(Device& device, std::span<const LayerCache> layers);

  virtual ~BlockPages() = default;

  virtual std::size_t bytes(int group) const {
    return groups_[static_cast<std::size_t>(group)].bytes;
  }
  virtual void read(int group, BlockId block, std::byte* out);
  virtual void write(int group, BlockId block, const std::byte* bytes);

  Device& device() { return device_; }

 private:
  struct Pages {
    std::byte* base = nullptr;  // of block 0
    std::size_t page_bytes = 0;
  };
  struct Group {
    std::vector<Pages> layers = {};  // those that share memory once
    std::size_t bytes = 0;
  };

  Device& device_;
  std::vector<Group> groups_;
};

}  // namespace quire
