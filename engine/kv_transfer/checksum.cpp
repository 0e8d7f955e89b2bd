#include "engine/kv_transfer/checksum.h"

#include <array>
#include <bit>
#include <cstring>

namespace quire {
namespace {

// Odd numbers without pattern: multiplication by them loses nothing.
constexpr std::uint64_t kFactor = 0x9fb21c651e98df25, kOther = 0xa24baed4963ee407;
constexpr std::size_t kLanes = 4;  // so that one multiplication need not wait for the one before

std::uint64_t word_at(const std::byte* bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
  return word;
}

constexpr std::uint64_t mixed(std::uint64_t state, std::uint64_t word) {
  return std::rotl((state ^ word) * kFactor, 29);
}

constexpr std::uint64_t spread(std::uint64_t state) {
  state = (state ^ (state >> 32)) * kOther;
  return state ^ (state >> 29);
}

}  // namespace

std::uint64_t kv_checksum(std::span<const std::byte> bytes, std::uint64_t seed) {
  std::array<std::uint64_t, kLanes> lanes{seed ^ 1, seed ^ 2, seed ^ 3, seed ^ 4};
  constexpr std::size_t kStride = kLanes * sizeof(std::uint64_t);
  std::size_t at = 0;
  for (; at + kStride <= bytes.size(); at += kStride) {
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] = mixed(lanes[lane], word_at(bytes.data() + at + lane * sizeof(std::uint64_t)));
  }
  std::array<std::byte, kStride> tail{};
  if (at < bytes.size()) std::memcpy(tail.data(), bytes.data() + at, bytes.size() - at);
  for (std::size_t lane = 0; lane < kLanes; ++lane)
    lanes[lane] = mixed(lanes[lane], word_at(tail.data() + lane * sizeof(std::uint64_t)));
  std::uint64_t sum = mixed(seed, bytes.size());
  for (const std::uint64_t lane : lanes) sum = mixed(sum, spread(lane));
  return spread(sum);
}

}  // namespace quire
