#pragma once
// Canonical CBOR (RFC 8949, 4.2): the shortest heads, definite lengths. As much of it as block
// hashes use.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace quire {

class CborWriter {
 public:
  std::span<const std::uint8_t> data() const { return data_; }
  void clear() { data_.clear(); }

  void unsigned_int(std::uint64_t value) { head(0, value); }
  void integer(std::int64_t value) {
    if (value >= 0) return head(0, static_cast<std::uint64_t>(value));
    head(1, ~static_cast<std::uint64_t>(value));  // −1 − value
  }
  void bytes(std::span<const std::uint8_t> value) {
    head(2, value.size());
    data_.insert(data_.end(), value.begin(), value.end());
  }
  void text(std::string_view utf8) {
    head(3, utf8.size());
    data_.insert(data_.end(), utf8.begin(), utf8.end());
  }
  void array(std::size_t num_items) { head(4, num_items); }  // the items follow
  void null() { data_.push_back(0xf6); }

 private:
  void head(int major, std::uint64_t value) {
    const auto type = static_cast<std::uint8_t>(major << 5);
    if (value < 24) return data_.push_back(static_cast<std::uint8_t>(type | value));
    const int width = value < (1u << 8) ? 0 : value < (1u << 16) ? 1 : value >> 32 == 0 ? 2 : 3;
    data_.push_back(static_cast<std::uint8_t>(type | (24 + width)));
    for (int shift = 8 * (1 << width) - 8; shift >= 0; shift -= 8) {
      data_.push_back(static_cast<std::uint8_t>(value >> shift));
    }
  }

  std::vector<std::uint8_t> data_;
};

}  // namespace quire
