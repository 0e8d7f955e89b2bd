#pragma once
// What travels is checked before it is used: 64 bits over a range of bytes. Against damage, not
// against people.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace quire {

// Differs with certainty where one aligned word of eight bytes differs, and with 1 − 2⁻⁶⁴
// otherwise.
std::uint64_t kv_checksum(std::span<const std::byte> bytes, std::uint64_t seed = 0);

// The same over bytes that come bit by bit, while they are still in the processor's cache.
class KvSum {
 public:
  static constexpr std::size_t kStride = 32;  // bytes

  explicit KvSum(std::uint64_t seed)
      : seed_(seed), lanes_{seed ^ 1, seed ^ 2, seed ^ 3, seed ^ 4} {}
  void add(std::span<const std::byte> strides);  // whole ones
  // The same, and copies them: what is summed is what has arrived. As fast as copying alone.
  void copy(std::span<const std::byte> strides, std::byte* to);
  std::uint64_t end(std::span<const std::byte> rest);  // with what is left, of any size

 private:
  template <bool copies>
  void take(std::span<const std::byte> strides, std::byte* to);

  const std::uint64_t seed_;
  std::array<std::uint64_t, 4> lanes_;
  std::uint64_t bytes_ = 0;
};

}  // namespace quire
