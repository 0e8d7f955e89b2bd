#include "text/tokenizer/segment_cache.h"

#include <utility>

#include "text/tokenizer/string_map.h"

namespace quire {
namespace {

constexpr std::size_t kLargestShare = 4;  // of the cache, the part that one text may take
constexpr std::size_t kPlaceBytes = 160;  // about what list, map and pointers take

std::uint64_t name_of(std::string_view text, bool starts_input) {
  return hash_bytes(text.data(), text.size()) ^ (starts_input ? 1 : 0);
}

}  // namespace

std::size_t SegmentCache::Segment::bytes() const {
  return kPlaceBytes + text.size() + ids.size() * sizeof(TokenId);
}

bool SegmentCache::append(std::string_view text, bool starts_input, std::vector<TokenId>& ids) {
  const std::uint64_t name = name_of(text, starts_input);
  std::shared_ptr<const Segment> found;
  {
    const std::lock_guard lock(mutex_);
    const auto place = places_.find(name);
    if (place == places_.end()) return false;
    order_.splice(order_.begin(), order_, place->second);
    found = place->second->second;
  }
  if (found->starts_input != starts_input || found->text != text) return false;
  ids.insert(ids.end(), found->ids.begin(), found->ids.end());
  return true;
}

void SegmentCache::put(std::string_view text, bool starts_input, std::span<const TokenId> ids) {
  auto segment = std::make_shared<const Segment>(
      Segment{std::string(text), starts_input, {ids.begin(), ids.end()}});
  if (segment->bytes() > max_bytes_ / kLargestShare) return;
  const std::uint64_t name = name_of(text, starts_input);
  const std::lock_guard lock(mutex_);
  if (const auto place = places_.find(name); place != places_.end()) drop(place->second);
  bytes_ += segment->bytes();
  order_.emplace_front(name, std::move(segment));
  places_[name] = order_.begin();
  while (bytes_ > max_bytes_) drop(std::prev(order_.end()));
}

void SegmentCache::drop(Order::iterator place) {
  bytes_ -= place->second->bytes();
  places_.erase(place->first);
  order_.erase(place);
}

std::size_t SegmentCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace quire
