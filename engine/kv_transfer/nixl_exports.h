#pragma once
// Finished prefills in the form in which vLLM's connector reads them: regions of equal blocks, one
// region per tensor, in memory that NIXL has registered. Each is kept for as long as its lease;
// what is freed is used again as late as can be. Beside them lies a sum for each block, which other
// Quire servers read too. Any thread.

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "backend/device.h"
#include "engine/kv_transfer/block_layout.h"
#include "engine/kv_transfer/block_regions.h"
#include "engine/kv_transfer/block_shape.h"

namespace quire {

inline constexpr std::uint64_t kNixlRegistration = 1;  // of the memory: once, at start

// The seed of a block's sum over all layers of its group: it says whose bytes they are.
std::uint64_t block_sum_seed(std::string_view key);

// Of what is read from here by numbers that a third party passes on: the block's place is of it.
struct BlockIdentity {
  std::uint64_t prompt_hash = 0;
  std::size_t group = 0;
  int first_token = 0;
};
std::uint64_t block_sum_seed(std::string_view key, const BlockIdentity& block);

class NixlExports {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kBlockSize = 16;  // tokens: it divides whatever vLLM uses

  // scratch: for one layer of the longest prompt. Throws Failure where the memory is too small or
  // layers of one region differ.
  NixlExports(Buffer memory, KvGeometry geometry, BlockRegions regions, BlockOrder order,
              std::int64_t scratch_bytes, std::chrono::nanoseconds lease);

  // The memory in which one prompt of so many tokens is kept.
  static std::int64_t bytes_for(const KvGeometry& geometry, const BlockRegions& regions,
                                std::int64_t scratch_bytes, int num_tokens);

  // Blocks by group. `read` copies the rows of one layer out of the cache; false: they are not
  // there.
  using ReadLayer = std::function<bool(const KvContent& layer, std::span<std::byte> bytes)>;
  // Empty: there is no room, or nothing to read.
  std::optional<std::vector<std::vector<std::int64_t>>> keep(const std::string& key,
                                                             std::uint64_t prompt_hash,
                                                             int num_tokens, const ReadLayer& read);

  void renew(const std::string& key);
  // A reader has all of it; the last of `readers` ends the lease.
  void was_read(const std::string& key, int readers);
  // The time of the next end; empty: none is kept.
  std::optional<Clock::time_point> expire(Clock::time_point now);
  void on_kept(std::function<void()> notify) { notify_ = std::move(notify); }

  // What others are told.
  struct Region {
    std::uint64_t address = 0, block_bytes = 0;
  };
  std::span<const Region> regions() const { return regions_; }
  std::int64_t num_blocks() const { return num_blocks_; }  // the kernel's
  int ratio() const { return blocks_.ratio; }              // of them in one that is named
  std::uint64_t sums_address() const { return reinterpret_cast<std::uint64_t>(sums_.data()); }
  std::span<std::byte> memory() const;  // to be registered

  struct Counts {
    std::int64_t kept = 0, expired = 0, read = 0, read_bytes = 0;
  };
  Counts counts() const;
  std::int64_t used_bytes() const;
  std::int64_t size_bytes() const { return static_cast<std::int64_t>(memory_.bytes()); }

 private:
  using Blocks = std::vector<std::vector<std::int64_t>>;  // by group
  struct Entry {
    Blocks blocks;
    Clock::time_point end;
    int readers = 0;
  };
  void lay_out(std::int64_t scratch_bytes);
  std::optional<Blocks> take(int num_tokens);
  void give_back(const Blocks& blocks);
  Blocks told_blocks(Blocks blocks, int num_tokens) const;
  void seed_sums(const std::string& key, std::uint64_t prompt_hash, int num_tokens,
                 const Blocks& blocks);
  void write_layer(std::size_t layer, const KvContent& content, const Blocks& blocks);
  void write_block(std::size_t layer, std::int64_t kernel_block, std::span<const std::byte> bytes);
  std::byte* block(std::size_t region, std::int64_t kernel_block) const;
  // Of one that is named, over all regions.
  std::int64_t block_bytes() const { return blocks_.kernel_bytes() * blocks_.ratio; }
  void erase(std::unordered_map<std::string, Entry>::iterator entry);

  const Buffer memory_;
  const KvGeometry geometry_;
  const BlockRegions shape_;
  const BlockShape blocks_;
  const BlockOrder order_;
  const std::chrono::nanoseconds lease_;
  std::function<void()> notify_ = [] {};
  std::vector<Region> regions_;
  std::span<std::uint64_t> sums_;
  std::span<std::byte> scratch_, block_scratch_;
  std::int64_t num_blocks_ = 0;

  mutable std::mutex mutex_;
  std::deque<std::int64_t> free_;  // the one that was freed first is used first
  std::unordered_map<std::string, Entry> entries_;
  Counts counts_;
};

// The strips of one layer as a content of its own.
KvContent layer_content(const KvContent& content, std::size_t layer);

}  // namespace quire
