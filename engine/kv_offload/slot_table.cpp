#include "engine/kv_offload/slot_table.h"

#include <algorithm>

namespace quire {

SlotTable::SlotTable(int num_slots, int most_tokens)
    : most_tokens_(static_cast<std::size_t>(most_tokens)),
      slots_(static_cast<std::size_t>(num_slots)),
      tokens_(slots_.size() * most_tokens_),
      order_(num_slots) {
  by_key_.reserve(slots_.size());
}

BlockContent SlotTable::content_of(int slot) const {
  const Slot& held = slots_[slot];
  return {.group = held.group,
          .hash = held.hash,
          .tokens = std::span(tokens_).subspan(static_cast<std::size_t>(slot) * most_tokens_,
                                               static_cast<std::size_t>(held.num_tokens))};
}

int SlotTable::find(const BlockContent& content) const {
  const auto found = by_key_.find({content.hash, content.group});
  if (found == by_key_.end()) return kNone;
  return std::ranges::equal(content_of(found->second).tokens, content.tokens) ? found->second
                                                                              : kNone;
}

void SlotTable::put(int slot, const BlockContent& content, std::uint64_t sum) {
  drop_content(slot);
  const auto [known, is_new] = by_key_.try_emplace({content.hash, content.group}, slot);
  if (!is_new) {
    forget(known->second);
    by_key_[{content.hash, content.group}] = slot;
  }
  slots_[slot] = {.hash = content.hash,
                  .group = content.group,
                  .num_tokens = static_cast<int>(content.tokens.size()),
                  .sum = sum};
  std::ranges::copy(content.tokens, tokens_of(slot).begin());
  touch(slot);
}

void SlotTable::touch(int slot) {
  if (order_.remove(slot)) order_.push_back(slot);
}

void SlotTable::drop_content(int slot) {
  if (is_held(slot)) by_key_.erase({slots_[slot].hash, slots_[slot].group});
  slots_[slot].group = -1;
}

void SlotTable::forget(int slot) {
  drop_content(slot);
  if (order_.remove(slot)) order_.push_front(slot);
}

void SlotTable::retire(int slot) {
  drop_content(slot);
  order_.remove(slot);
}

void SlotTable::clear() {
  by_key_.clear();
  for (int slot = 0; slot < num_slots(); ++slot) {
    slots_[static_cast<std::size_t>(slot)].group = -1;
    order_.remove(slot);
    order_.push_back(slot);
  }
}

}  // namespace quire
