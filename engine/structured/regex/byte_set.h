#pragma once
// A set of bytes.

#include <array>
#include <bit>
#include <compare>
#include <cstdint>

namespace quire::structured {

struct ByteSet {
  std::array<std::uint64_t, 4> words{};

  static constexpr ByteSet of(std::uint8_t byte) {
    ByteSet set;
    set.add(byte);
    return set;
  }
  static constexpr ByteSet range(std::uint8_t first, std::uint8_t last) {
    ByteSet set;
    for (unsigned b = first; b <= last; ++b) set.add(static_cast<std::uint8_t>(b));
    return set;
  }
  constexpr void add(std::uint8_t byte) { words[byte >> 6] |= std::uint64_t{1} << (byte & 63); }
  constexpr bool has(std::uint8_t byte) const { return words[byte >> 6] >> (byte & 63) & 1; }
  constexpr bool empty() const { return (words[0] | words[1] | words[2] | words[3]) == 0; }
  constexpr ByteSet& operator|=(const ByteSet& other) {
    for (int i = 0; i < 4; ++i) words[i] |= other.words[i];
    return *this;
  }
  constexpr ByteSet& operator&=(const ByteSet& other) {
    for (int i = 0; i < 4; ++i) words[i] &= other.words[i];
    return *this;
  }
  template <class Visit>  // visit(byte), ascending
  constexpr void for_each(Visit visit) const {
    for (int i = 0; i < 4; ++i) {
      for (std::uint64_t left = words[i]; left != 0; left &= left - 1) {
        visit(static_cast<std::uint8_t>(i * 64 + std::countr_zero(left)));
      }
    }
  }
  auto operator<=>(const ByteSet&) const = default;
};

}  // namespace quire::structured
