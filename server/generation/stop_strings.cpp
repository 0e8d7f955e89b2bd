#include "server/generation/stop_strings.h"

#include <algorithm>
#include <utility>

namespace quire {

StopStrings::StopStrings(std::span<const std::string> stops, bool include)
    : stops_(stops), include_(include) {
  for (const std::string& stop : stops_) longest_ = std::max(longest_, stop.size());
}

std::string StopStrings::push(std::string_view piece, bool search) {
  if (found_) return {};
  if (stops_.empty()) return std::string(piece);
  pending_ += piece;
  std::size_t first = std::string::npos;
  for (const std::string& stop : stops_) {
    const std::size_t at = search ? pending_.find(stop) : std::string::npos;
    if (at < first) {
      first = at;
      found_ = stop;
    }
  }
  const std::size_t size =
      found_ ? first + (include_ ? found_->size() : 0) : pending_.size() - size_to_hold();
  std::string certain = pending_.substr(0, size);
  pending_.erase(0, size);
  return certain;
}

std::string StopStrings::finish() { return found_ ? std::string() : std::exchange(pending_, {}); }

// The longest end of the text that begins a stop string.
std::size_t StopStrings::size_to_hold() const {
  const std::string_view text = pending_;
  for (std::size_t size = std::min(text.size(), longest_ - 1); size > 0; --size) {
    const std::string_view end = text.substr(text.size() - size);
    const auto begins = [&](const std::string& stop) { return stop.starts_with(end); };
    if (std::any_of(stops_.begin(), stops_.end(), begins)) return size;
  }
  return 0;
}

}  // namespace quire
