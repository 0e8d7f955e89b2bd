#include "engine/kv_offload/host_slots.h"

#include <algorithm>
#include <utility>

#include "engine/kv_transfer/content/checksum.h"

namespace quire {

HostSlots::HostSlots(BlockPages& pages, Buffer memory, std::size_t slot_bytes, int most_tokens)
    : pages_(pages),
      memory_(std::move(memory)),
      slot_bytes_(slot_bytes),
      table_(static_cast<int>(memory_.bytes() / slot_bytes), most_tokens),
      pinned_(static_cast<std::size_t>(table_.num_slots())),
      is_immediate_(pages.device().is_host_memory()) {
  if (!is_immediate_) arrival_ = pages.device().create_event();
}

std::span<std::byte> HostSlots::bytes(int slot, int group) {
  return {static_cast<std::byte*>(memory_.data()) + static_cast<std::size_t>(slot) * slot_bytes_,
          pages_.bytes(group)};
}

void HostSlots::fill(int slot, BlockId block, const BlockContent& content) {
  pages_.read(content.group, block, bytes(slot, content.group).data());
  table_.put(slot, content, 0);
  if (is_immediate_) return sum(slot);
  later_.push_back(slot);
  settle(false);
}

void HostSlots::sum(int slot) {
  table_.set_sum(slot, kv_checksum(bytes(slot, table_.content_of(slot).group)));
}

bool HostSlots::copy_back(int slot, BlockId block) {
  if (!is_settled(slot)) settle(true);
  const int group = table_.content_of(slot).group;
  const auto kept = bytes(slot, group);
  if (kv_checksum(kept) != table_.sum_of(slot)) return false;
  pages_.write(group, block, kept.data());
  return true;
}

bool HostSlots::is_settled(int slot) const {
  return std::ranges::find(awaited_, slot) == awaited_.end() &&
         std::ranges::find(later_, slot) == later_.end();
}

void HostSlots::settle(bool all) {
  if (is_immediate_) return;
  if (all) wait_for_device();
  if (!all && !awaited_.empty() && !arrival_->ready()) return;
  for (const int slot : awaited_)
    if (table_.is_held(slot)) sum(slot);
  awaited_.clear();
  if (all) {
    for (const int slot : later_)
      if (table_.is_held(slot)) sum(slot);
    later_.clear();
  }
  if (later_.empty()) return;
  awaited_.swap(later_);
  arrival_->record(pages_.device().stream());
}

void HostSlots::wait_for_device() {
  if (!is_immediate_) pages_.device().synchronize(pages_.device().stream());
}

}  // namespace quire
