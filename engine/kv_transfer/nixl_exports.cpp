#include "engine/kv_transfer/nixl_exports.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "engine/kv_transfer/checksum.h"

namespace quire {
namespace {

constexpr std::int64_t kAlign = 64;
constexpr std::uint64_t kSumSeed = 0x51;

std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

struct Range {
  int first_token = 0, num_blocks = 0;
};

// Windows keep the blocks that vLLM's do: one more than they span.
Range range_of(const KvGeometry& geometry, const BlockRegions& shape, std::size_t group,
               int num_tokens) {
  constexpr int kSize = NixlExports::kBlockSize;
  const int total = (num_tokens + kSize - 1) / kSize;
  Range range{.first_token = 0, .num_blocks = total};
  for (std::size_t i = 0; i < geometry.layers.size(); ++i) {
    const KvLayerGeometry& layer = geometry.layers[i];
    if (shape.group_of_layer[i] != static_cast<int>(group) || layer.window == 0) continue;
    range.num_blocks = std::min(total, (layer.window + kSize - 1) / kSize + 1);
    range.first_token = (total - range.num_blocks) * kSize;
    break;
  }
  return range;
}

std::int64_t num_blocks_of(const KvGeometry& geometry, const BlockRegions& shape, int num_tokens) {
  std::int64_t blocks = 0;
  for (std::size_t g = 0; g < shape.num_groups; ++g)
    blocks += range_of(geometry, shape, g, num_tokens).num_blocks;
  return blocks;
}

// What the memory is divided into: so much at once, and so much for each block.
struct Shares {
  std::vector<std::int64_t> of_region;  // bytes of a block
  std::int64_t largest = 0;             // of them
  std::int64_t fixed = 0, per_block = 0;
};

Shares shares_of(const KvGeometry& geometry, const BlockRegions& shape,
                 std::int64_t scratch_bytes) {
  Shares shares{.of_region = std::vector<std::int64_t>(shape.num_regions, 0)};
  for (std::size_t i = 0; i < geometry.layers.size(); ++i) {
    const KvLayerGeometry& layer = geometry.layers[i];
    std::int64_t& region = shares.of_region[shape.region_of_layer[i]];
    const std::int64_t wanted = block_bytes(layer, NixlExports::kBlockSize, layer.heads);
    if (region != 0 && region != wanted)
      throw Failure(Error{ErrorCode::unsupported,
                          fmt::format("KvTransferConfig::plane nixl: layer {} has blocks of {} "
                                      "bytes where others of its tensor have {}",
                                      layer.name, wanted, region),
                          "KvTransferConfig::plane"});
    region = wanted;
    shares.largest = std::max(shares.largest, wanted);
  }
  shares.fixed = aligned(scratch_bytes) + aligned(shares.largest) + 2 * kAlign;
  shares.per_block = std::accumulate(shares.of_region.begin(), shares.of_region.end(),
                                     static_cast<std::int64_t>(sizeof(std::uint64_t)));
  return shares;
}

}  // namespace

std::uint64_t block_sum_seed(std::string_view key) {
  return kv_checksum(std::as_bytes(std::span(key)), kSumSeed);
}

KvContent layer_content(const KvContent& content, std::size_t layer) {
  KvContent one{.num_tokens = content.num_tokens};
  for (const KvStrip& strip : content.strips) {
    if (strip.layer != static_cast<int>(layer)) continue;
    one.strips.push_back(strip);
    one.strips.back().offset = one.bytes;
    one.bytes += strip.bytes();
  }
  return one;
}

NixlExports::NixlExports(Buffer memory, KvGeometry geometry, BlockRegions regions, BlockOrder order,
                         std::int64_t scratch_bytes, std::chrono::nanoseconds lease)
    : memory_(std::move(memory)),
      geometry_(std::move(geometry)),
      shape_(std::move(regions)),
      order_(order),
      lease_(lease) {
  lay_out(scratch_bytes);
  for (std::int64_t id = 1; id < num_blocks_; ++id) free_.push_back(id);  // 0 is vLLM's null block
}

// Sums, then the regions one after the other, then what copies need.
void NixlExports::lay_out(std::int64_t scratch_bytes) {
  const auto [bytes, largest, fixed, per_block] =
      shares_of(geometry_, shape_, scratch_bytes);
  block_bytes_ = per_block - static_cast<std::int64_t>(sizeof(std::uint64_t));
  num_blocks_ = std::max<std::int64_t>(0, (size_bytes() - fixed) / per_block);
  if (num_blocks_ < 2)
    throw Failure(Error{ErrorCode::invalid_argument,
                        fmt::format("KvTransferConfig::buffer_bytes is {}; over nixl this model "
                                    "needs at least {}",
                                    size_bytes(), fixed + 2 * per_block),
                        "KvTransferConfig::buffer_bytes"});
  auto* at = static_cast<std::byte*>(memory_.data());
  sums_ = {reinterpret_cast<std::uint64_t*>(at), static_cast<std::size_t>(num_blocks_)};
  at += aligned(num_blocks_ * static_cast<std::int64_t>(sizeof(std::uint64_t)));
  for (const std::int64_t one : bytes) {
    regions_.push_back({reinterpret_cast<std::uint64_t>(at), static_cast<std::uint64_t>(one)});
    at += num_blocks_ * one;
  }
  block_scratch_ = {at, static_cast<std::size_t>(largest)};
  scratch_ = {at + aligned(largest), static_cast<std::size_t>(scratch_bytes)};
}

std::span<std::byte> NixlExports::memory() const {
  return {
      static_cast<std::byte*>(memory_.data()),
      static_cast<std::size_t>(block_scratch_.data() - static_cast<std::byte*>(memory_.data()))};
}

// Block 0 is not used.
std::int64_t NixlExports::bytes_for(const KvGeometry& geometry, const BlockRegions& regions,
                                    std::int64_t scratch_bytes, int num_tokens) {
  const Shares shares = shares_of(geometry, regions, scratch_bytes);
  return shares.fixed + (num_blocks_of(geometry, regions, num_tokens) + 1) * shares.per_block;
}

std::optional<NixlExports::Blocks> NixlExports::take(int num_tokens) {
  const auto wanted = static_cast<std::size_t>(num_blocks_of(geometry_, shape_, num_tokens));
  const std::lock_guard lock(mutex_);
  if (wanted > free_.size()) return std::nullopt;
  Blocks blocks(shape_.num_groups);
  for (std::size_t g = 0; g < shape_.num_groups; ++g) {
    for (int i = 0; i < range_of(geometry_, shape_, g, num_tokens).num_blocks; ++i) {
      blocks[g].push_back(free_.front());
      free_.pop_front();
    }
  }
  return blocks;
}

void NixlExports::give_back(const Blocks& blocks) {
  for (const auto& group : blocks) free_.insert(free_.end(), group.begin(), group.end());
}

std::span<std::byte> NixlExports::block(std::size_t region, std::int64_t id) const {
  const Region& one = regions_[region];
  return {
      reinterpret_cast<std::byte*>(one.address + static_cast<std::uint64_t>(id) * one.block_bytes),
      one.block_bytes};
}

void NixlExports::write_layer(std::size_t layer, const KvContent& content, const Blocks& blocks) {
  const auto group = static_cast<std::size_t>(shape_.group_of_layer[layer]);
  const std::size_t region = shape_.region_of_layer[layer];
  const KvLayerGeometry& geometry = geometry_.layers[layer];
  int token = range_of(geometry_, shape_, group, content.num_tokens).first_token;
  for (const std::int64_t id : blocks[group]) {
    const BlockPlace place{.layer = layer,
                           .first_token = token,
                           .num_tokens = kBlockSize,
                           .first_head = 0,
                           .num_heads = geometry.heads,
                           .order = order_};
    const auto whole = block_scratch_.first(
        static_cast<std::size_t>(quire::block_bytes(geometry, kBlockSize, geometry.heads)));
    std::ranges::fill(whole, std::byte{0});
    content_to_block(geometry_, place, content, scratch_, whole);
    std::uint64_t& sum = sums_[static_cast<std::size_t>(id)];
    sum = kv_checksum(whole, sum);
    std::ranges::copy(whole, block(region, id).begin());
    token += kBlockSize;
  }
}

std::optional<std::vector<std::vector<std::int64_t>>> NixlExports::keep(const std::string& key,
                                                                        int num_tokens,
                                                                        const ReadLayer& read) {
  auto blocks = take(num_tokens);
  if (!blocks) return std::nullopt;
  for (const auto& group : *blocks)
    for (const std::int64_t id : group) sums_[static_cast<std::size_t>(id)] = block_sum_seed(key);
  const KvContent content = kv_content(geometry_, num_tokens);
  for (std::size_t i = 0; i < geometry_.layers.size(); ++i) {
    const KvContent layer = layer_content(content, i);
    const bool fits = layer.bytes <= static_cast<std::int64_t>(scratch_.size());
    if (!fits || !read(layer, scratch_.first(static_cast<std::size_t>(layer.bytes)))) {
      const std::lock_guard lock(mutex_);
      give_back(*blocks);
      return std::nullopt;
    }
    write_layer(i, layer, *blocks);
  }
  {
    const std::lock_guard lock(mutex_);
    entries_[key] = {*blocks, Clock::now() + lease_};
    ++counts_.kept;
  }
  notify_();
  return blocks;
}

void NixlExports::renew(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found != entries_.end())
    found->second.end = std::max(found->second.end, Clock::now() + lease_ * 2 / 3);
}

void NixlExports::erase(std::unordered_map<std::string, Entry>::iterator entry) {
  give_back(entry->second.blocks);
  entries_.erase(entry);
}

void NixlExports::was_read(const std::string& key, int readers) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end() || ++found->second.readers < readers) return;
  ++counts_.read;
  for (const auto& group : found->second.blocks)
    counts_.read_bytes += static_cast<std::int64_t>(group.size()) * block_bytes_;
  erase(found);
}

std::optional<NixlExports::Clock::time_point> NixlExports::expire(Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  std::optional<Clock::time_point> next;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto current = entry++;
    if (current->second.end <= now) {
      ++counts_.expired;
      erase(current);
    } else {
      next = next ? std::min(*next, current->second.end) : current->second.end;
    }
  }
  return next;
}

NixlExports::Counts NixlExports::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::int64_t NixlExports::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return (num_blocks_ - 1 - static_cast<std::int64_t>(free_.size())) * block_bytes_;
}

}  // namespace quire
