#pragma once
// The free blocks in the order of their reuse: a doubly linked list whose links lie in one array,
// so that any block joins or leaves in a few stores.

#include <cassert>
#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace quire {

class FreeList {
 public:
  // Blocks [0, num_blocks), ascending.
  explicit FreeList(int num_blocks)
      : links_(static_cast<std::size_t>(num_blocks) + 1), size_(num_blocks) {
    for (BlockId id = 0; id <= num_blocks; ++id) links_[id] = {id - 1, id + 1};
    links_[0].previous = sentinel();
    links_[sentinel()].next = 0;
  }

  int size() const { return size_; }
  bool holds(BlockId id) const { return links_[id].next != kOut; }

  // The head; kNoBlock when empty.
  BlockId pop_front() {
    const BlockId head = links_[sentinel()].next;
    if (head == sentinel()) return kNoBlock;
    unlink(head);
    return head;
  }

  void push_back(BlockId id) {
    assert(!holds(id));
    const BlockId tail = links_[sentinel()].previous;
    links_[tail].next = id;
    links_[id] = {tail, sentinel()};
    links_[sentinel()].previous = id;
    ++size_;
  }

  void push_front(BlockId id) {
    assert(!holds(id));
    const BlockId head = links_[sentinel()].next;
    links_[head].previous = id;
    links_[id] = {sentinel(), head};
    links_[sentinel()].next = id;
    ++size_;
  }

  // False: it was not in the list.
  bool remove(BlockId id) {
    if (!holds(id)) return false;
    unlink(id);
    return true;
  }

  // In list order; ends with kNoBlock.
  BlockId front() const { return or_none(links_[sentinel()].next); }
  BlockId after(BlockId id) const { return or_none(links_[id].next); }

  void prefetch(BlockId id) const { __builtin_prefetch(&links_[id]); }

  static constexpr BlockId kNoBlock = -1;

 private:
  struct Link {
    BlockId previous;
    BlockId next;
  };
  static constexpr BlockId kOut = -1;

  BlockId sentinel() const { return static_cast<BlockId>(links_.size()) - 1; }
  BlockId or_none(BlockId id) const { return id == sentinel() ? kNoBlock : id; }

  void unlink(BlockId id) {
    const Link link = links_[id];
    links_[link.previous].next = link.next;
    links_[link.next].previous = link.previous;
    links_[id] = {kOut, kOut};
    --size_;
  }

  std::vector<Link> links_;  // by block id; the last is the sentinel
  int size_;
};

}  // namespace quire
