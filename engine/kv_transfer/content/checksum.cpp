#include "engine/kv_transfer/content/checksum.h"

#include <array>
#include <bit>
#include <cstring>

#ifdef __x86_64__
#include <emmintrin.h>
#endif

namespace quire {
namespace {

// Odd numbers without pattern: multiplication by them loses nothing.
constexpr std::uint64_t kFactor = 0x9fb21c651e98df25, kOther = 0xa24baed4963ee407;
// Four lanes, so that one multiplication need not wait for the one before.
constexpr std::size_t kLanes = KvSum::kStride / sizeof(std::uint64_t);

std::uint64_t word_at(const std::byte* bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
  return word;
}

// What is copied is read next when all of it has come, and is long: it goes past the caches, as
// memcpy writes what is too large for them. Otherwise each line of `to` would be read, too.
void stream_word(std::byte* to, std::uint64_t word) {
#ifdef __x86_64__
  _mm_stream_si64(reinterpret_cast<long long*>(to), static_cast<long long>(word));
#else
  if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
  std::memcpy(to, &word, sizeof word);
#endif
}
// Before others are told that it is there.
void end_streaming() {
#ifdef __x86_64__
  _mm_sfence();
#endif
}

constexpr std::uint64_t mixed(std::uint64_t state, std::uint64_t word) {
  return std::rotl((state ^ word) * kFactor, 29);
}

constexpr std::uint64_t spread(std::uint64_t state) {
  state = (state ^ (state >> 32)) * kOther;
  return state ^ (state >> 29);
}

}  // namespace

template <bool copies>
void KvSum::take(std::span<const std::byte> strides, std::byte* to) {
  auto lanes = lanes_;
  for (std::size_t at = 0; at + kStride <= strides.size(); at += kStride) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::size_t place = at + lane * sizeof(std::uint64_t);
      const std::uint64_t word = word_at(strides.data() + place);
      if constexpr (copies) stream_word(to + place, word);
      lanes[lane] = mixed(lanes[lane], word);
    }
  }
  if constexpr (copies) end_streaming();
  lanes_ = lanes;
  bytes_ += strides.size();
}

void KvSum::add(std::span<const std::byte> strides) { take<false>(strides, nullptr); }

void KvSum::copy(std::span<const std::byte> strides, std::byte* to) { take<true>(strides, to); }

std::uint64_t KvSum::end(std::span<const std::byte> rest) {
  const std::size_t whole = rest.size() / kStride * kStride;
  add(rest.first(whole));
  std::array<std::byte, kStride> tail{};
  if (whole < rest.size()) std::memcpy(tail.data(), rest.data() + whole, rest.size() - whole);
  bytes_ += rest.size() - whole;
  for (std::size_t lane = 0; lane < kLanes; ++lane)
    lanes_[lane] = mixed(lanes_[lane], word_at(tail.data() + lane * sizeof(std::uint64_t)));
  std::uint64_t sum = mixed(seed_, bytes_);
  for (const std::uint64_t lane : lanes_) sum = mixed(sum, spread(lane));
  return spread(sum);
}

std::uint64_t kv_checksum(std::span<const std::byte> bytes, std::uint64_t seed) {
  return KvSum(seed).end(bytes);
}

}  // namespace quire
