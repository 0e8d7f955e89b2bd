#include "engine/kv_transfer/nixl/exports.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "engine/kv_nixl/block_ids.h"
#include "engine/kv_transfer/blocks/state_layout.h"
#include "engine/kv_transfer/blocks/sum_seed.h"
#include "engine/kv_transfer/content/checksum.h"

namespace quire {
namespace {

constexpr std::int64_t kAlign = 64;

std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

struct Range {
  int first_token = 0, num_blocks = 0;
};

// By the blocks that are named. Windows keep those that vLLM's do, one more than they span; chunks
// their own; a state is one.
Range range_of(const KvGeometry& geometry, const BlockRegions& regions, int block_size,
               std::size_t group, int num_tokens) {
  const int total = (num_tokens + block_size - 1) / block_size;
  Range range{.first_token = 0, .num_blocks = total};
  for (std::size_t i = 0; i < geometry.layers.size(); ++i) {
    const KvLayerGeometry& layer = geometry.layers[i];
    if (regions.group_of_layer[i] != static_cast<int>(group)) continue;
    if (layer.is_state()) return {.first_token = num_tokens - 1, .num_blocks = 1};
    if (layer.window > 0)
      range.num_blocks = std::min(total, (layer.window + block_size - 1) / block_size + 1);
    if (layer.chunk > 0)
      range.num_blocks = total - first_kept_token(layer, num_tokens) / block_size;
    range.first_token = (total - range.num_blocks) * block_size;
    break;
  }
  return range;
}

std::int64_t num_blocks_of(const KvGeometry& geometry, const BlockRegions& regions, int block_size,
                           int num_tokens) {
  std::int64_t blocks = 0;
  for (std::size_t g = 0; g < regions.num_groups; ++g)
    blocks += range_of(geometry, regions, block_size, g, num_tokens).num_blocks;
  return blocks;
}

// What the memory is divided into: so much at once, and so much for each of the kernel's blocks.
struct Shares {
  std::int64_t fixed = 0, per_block = 0;
};

Shares shares_of(const BlockShape& shape, std::int64_t scratch_bytes) {
  return {.fixed = aligned(scratch_bytes) + aligned(shape.largest) + 2 * kAlign,
          .per_block = shape.kernel_bytes() + static_cast<std::int64_t>(sizeof(std::uint64_t))};
}

}  // namespace

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
      blocks_(block_shape(geometry_, shape_, kBlockSize)),
      order_(order),
      lease_(lease) {
  lay_out(scratch_bytes);
  // 0 is vLLM's null block.
  for (std::int64_t id = 1; id < num_blocks_ / blocks_.ratio; ++id) free_.push_back(id);
}

// Sums, then the regions one after the other, then what copies need.
void NixlExports::lay_out(std::int64_t scratch_bytes) {
  const auto [fixed, per_block] = shares_of(blocks_, scratch_bytes);
  const std::int64_t ratio = blocks_.ratio;
  num_blocks_ = std::max<std::int64_t>(0, (size_bytes() - fixed) / per_block) / ratio * ratio;
  if (num_blocks_ < 2 * ratio)
    throw Failure(Error{ErrorCode::invalid_argument,
                        fmt::format("KvTransferConfig::buffer_bytes is {}; over nixl this model "
                                    "needs at least {}",
                                    size_bytes(), fixed + 2 * ratio * per_block),
                        "KvTransferConfig::buffer_bytes"});
  auto* at = static_cast<std::byte*>(memory_.data());
  sums_ = {reinterpret_cast<std::uint64_t*>(at), static_cast<std::size_t>(num_blocks_)};
  at += aligned(num_blocks_ * static_cast<std::int64_t>(sizeof(std::uint64_t)));
  for (const std::int64_t one : blocks_.region_bytes) {
    regions_.push_back({reinterpret_cast<std::uint64_t>(at), static_cast<std::uint64_t>(one)});
    at += num_blocks_ * one;
  }
  block_scratch_ = {at, static_cast<std::size_t>(blocks_.largest)};
  scratch_ = {at + aligned(blocks_.largest), static_cast<std::size_t>(scratch_bytes)};
}

std::span<std::byte> NixlExports::memory() const {
  return {
      static_cast<std::byte*>(memory_.data()),
      static_cast<std::size_t>(block_scratch_.data() - static_cast<std::byte*>(memory_.data()))};
}

// Block 0 is not used.
std::int64_t NixlExports::bytes_for(const KvGeometry& geometry, const BlockRegions& regions,
                                    std::int64_t scratch_bytes, int num_tokens) {
  const BlockShape shape = block_shape(geometry, regions, kBlockSize);
  const Shares shares = shares_of(shape, scratch_bytes);
  const std::int64_t blocks =
      num_blocks_of(geometry, regions, kBlockSize * shape.ratio, num_tokens) + 1;
  return shares.fixed + blocks * shape.ratio * shares.per_block;
}

std::optional<NixlExports::Blocks> NixlExports::take(int num_tokens) {
  const int size = kBlockSize * blocks_.ratio;
  const auto wanted = static_cast<std::size_t>(num_blocks_of(geometry_, shape_, size, num_tokens));
  const std::lock_guard lock(mutex_);
  if (wanted > free_.size()) return std::nullopt;
  Blocks blocks(shape_.num_groups);
  for (std::size_t g = 0; g < shape_.num_groups; ++g) {
    for (int i = 0; i < range_of(geometry_, shape_, size, g, num_tokens).num_blocks; ++i) {
      blocks[g].push_back(free_.front());
      free_.pop_front();
    }
  }
  return blocks;
}

void NixlExports::give_back(const Blocks& blocks) {
  for (const auto& group : blocks) free_.insert(free_.end(), group.begin(), group.end());
}

std::byte* NixlExports::block(std::size_t region, std::int64_t kernel_block) const {
  const Region& one = regions_[region];
  return reinterpret_cast<std::byte*>(one.address +
                                      static_cast<std::uint64_t>(kernel_block) * one.block_bytes);
}

void NixlExports::write_block(std::size_t layer, std::int64_t kernel_block,
                              std::span<const std::byte> bytes) {
  std::uint64_t& sum = sums_[static_cast<std::size_t>(kernel_block)];
  sum = kv_checksum(bytes, sum);
  std::ranges::copy(bytes, block(shape_.region_of_layer[layer], kernel_block));
}

void NixlExports::write_layer(std::size_t layer, const KvContent& content, const Blocks& blocks) {
  const auto group = static_cast<std::size_t>(shape_.group_of_layer[layer]);
  const KvLayerGeometry& geometry = geometry_.layers[layer];
  if (geometry.is_state()) {
    const auto whole = block_scratch_.first(static_cast<std::size_t>(geometry.row_bytes));
    state_to_block(geometry.state, scratch_.first(whole.size()), whole);
    write_block(layer, blocks[group].front() * blocks_.ratio, whole);
    return;
  }
  int token = range_of(geometry_, shape_, kBlockSize * blocks_.ratio, group, content.num_tokens)
                  .first_token;
  const auto whole = block_scratch_.first(
      static_cast<std::size_t>(quire::block_bytes(geometry, kBlockSize, geometry.heads)));
  for (const std::int64_t id : kernel_blocks(blocks[group], blocks_.ratio, false)) {
    const BlockPlace place{.layer = layer,
                           .first_token = token,
                           .num_tokens = kBlockSize,
                           .first_head = 0,
                           .num_heads = geometry.heads,
                           .order = order_};
    std::ranges::fill(whole, std::byte{0});
    content_to_block(geometry_, place, content, scratch_, whole);
    write_block(layer, id, whole);
    token += kBlockSize;
  }
}

void NixlExports::seed_sums(const std::string& key, std::uint64_t prompt_hash, int num_tokens,
                            const Blocks& blocks) {
  for (std::size_t g = 0; g < blocks.size(); ++g) {
    const int size = kBlockSize * blocks_.ratio;
    BlockIdentity block{
        .prompt_hash = prompt_hash,
        .group = g,
        .first_token = range_of(geometry_, shape_, size, g, num_tokens).first_token};
    for (const std::int64_t id : kernel_blocks(blocks[g], blocks_.ratio, false)) {
      sums_[static_cast<std::size_t>(id)] = block_sum_seed(key, block);
      block.first_token += kBlockSize;
    }
  }
}

std::optional<NixlExports::Blocks> NixlExports::keep(const std::string& key,
                                                     std::uint64_t prompt_hash, int num_tokens,
                                                     const ReadLayer& read) {
  auto blocks = take(num_tokens);
  if (!blocks) return std::nullopt;
  seed_sums(key, prompt_hash, num_tokens, *blocks);
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
  return told_blocks(*blocks, num_tokens);
}

// vLLM names the blocks before a chunk too, as block 0, and those before a window not.
NixlExports::Blocks NixlExports::told_blocks(Blocks blocks, int num_tokens) const {
  const int size = kBlockSize * blocks_.ratio;
  const auto total = static_cast<std::size_t>((num_tokens + size - 1) / size);
  for (std::size_t i = 0; i < geometry_.layers.size(); ++i) {
    auto& group = blocks[static_cast<std::size_t>(shape_.group_of_layer[i])];
    if (geometry_.layers[i].chunk > 0) group.insert(group.begin(), total - group.size(), 0);
  }
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
    counts_.read_bytes += static_cast<std::int64_t>(group.size()) * block_bytes();
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
  const std::int64_t all = num_blocks_ / blocks_.ratio - 1;
  return (all - static_cast<std::int64_t>(free_.size())) * block_bytes();
}

}  // namespace quire
