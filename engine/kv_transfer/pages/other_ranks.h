#pragma once
// The caches of a divided model's other ranks, as rank 0 reads and writes them: all of its own
// copies of the cache are made by all. What is asked for is in words that each of them reads.

#include <cstddef>
#include <cstdint>
#include <span>

namespace quire {

enum class RankBytes : std::uint8_t {
  rows,   // of an encoded content, in its order (divided_pages.h)
  block,  // a group and a block: the pages of one rank behind those of the other
};

class OtherRanks {
 public:
  // Most bytes at a time.
  static constexpr std::size_t kMostBytes = std::size_t{128} << 20;

  virtual ~OtherRanks() = default;
  virtual int size() const = 0;  // with rank 0
  // What each of them has lies where it belongs, rank 0's part is not there; until the next call.
  // Throws Failure where one is gone.
  virtual std::span<std::byte> read(RankBytes kind, std::span<const std::int64_t> words,
                                    std::size_t num_bytes) = 0;
  // Returns at once: it is done before a later step's reading.
  virtual void write(RankBytes kind, std::span<const std::int64_t> words,
                     std::span<const std::byte> bytes) = 0;
};

}  // namespace quire
