#include "engine/kv_transfer/mooncake/landing.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "engine/kv_transfer/blocks/state_layout.h"
#include "engine/kv_transfer/blocks/sum_seed.h"
#include "engine/kv_transfer/content/checksum.h"
#include "engine/kv_transfer/plane/data_plane.h"

namespace quire {
namespace {

constexpr std::size_t kMostPartsOfBlock = 64;

KvGeometry with_block_size(KvGeometry geometry, int block_size) {
  for (KvLayerGeometry& layer : geometry.layers) layer.block_size = block_size;
  return geometry;
}

std::uint64_t region_address(std::size_t layer) { return (layer + 1) * kMooncakeRegionBytes; }

// "model.layers.12.self_attn": 12.
std::optional<int> number_in(const std::string& name) {
  constexpr std::string_view kBefore = "layers.";
  const auto at = name.find(kBefore);
  if (at == std::string::npos) return std::nullopt;
  int number = 0;
  const char* const begin = name.data() + at + kBefore.size();
  const auto read = std::from_chars(begin, name.data() + name.size(), number);
  return read.ec == std::errc() ? std::optional(number) : std::nullopt;
}

// As vLLM's model calls what keeps something.
std::string name_of(const KvLayerGeometry& layer, int number) {
  std::string_view what = "self_attn.attn";
  if (layer.is_state())
    what = layer.state.form == StateForm::mamba2 ? "mixer" : "linear_attn";
  else if (layer.name.ends_with(".mixer"))
    what = "mixer.attn";
  return fmt::format("model.layers.{}.{}", number, what);
}

// Of the kernel's block of the first layer that has heads; 0: none has.
std::int64_t bytes_with_heads(const KvGeometry& geometry, int block_size) {
  for (const KvLayerGeometry& layer : geometry.layers)
    if (!layer.is_state()) return block_bytes(layer, block_size, layer.heads);
  return 0;
}

}  // namespace

int MooncakeSelf::ratio() const {
  const std::int64_t block = bytes_with_heads(geometry, block_size);
  std::int64_t largest = 1;
  for (const KvLayerGeometry& layer : geometry.layers)
    if (layer.is_state()) largest = std::max(largest, layer.row_bytes);
  return block == 0 ? 1 : static_cast<int>((largest + block - 1) / block);
}

std::int64_t MooncakeSelf::block_bytes(std::size_t layer) const {
  const KvLayerGeometry& one = geometry.layers[layer];
  if (one.is_state())
    return std::max(one.row_bytes, ratio() * bytes_with_heads(geometry, block_size));
  return quire::block_bytes(one, block_size, one.heads);
}

std::vector<int> mooncake_layer_numbers(const KvGeometry& geometry) {
  std::vector<int> numbers;
  int behind = 0;
  for (const KvLayerGeometry& layer : geometry.layers) {
    const bool is_draft = layer.name.starts_with("draft.");
    const int number = number_in(layer.name).value_or(static_cast<int>(numbers.size()));
    if (!is_draft) behind = std::max(behind, number + 1);
    numbers.push_back(is_draft ? behind + number : number);
  }
  return numbers;
}

void check_mooncake_writers(const MooncakeSelf& self, int num_ranks, bool is_quire) {
  if (is_quire || !self.geometry.has_states()) return;
  if (!self.geometry.draft_fingerprint.empty())
    throw KvLost(KvLossReason::incompatible,
                 "recurrent states beside a draft model are taken from Quire servers only");
  for (const KvLayerGeometry& layer : self.geometry.layers) {
    // Ranks that have the same heads do not write, and each has a part of the state.
    const bool is_divided = layer.is_state() ? divides(layer.state, num_ranks)
                                             : layer.planes == 1 || layer.heads % num_ranks == 0;
    if (!is_divided)
      throw KvLost(KvLossReason::incompatible,
                   fmt::format("{} ranks there do not divide what {} keeps beside recurrent states",
                               num_ranks, layer.name));
  }
}

std::vector<MooncakeRegion> mooncake_regions(const MooncakeSelf& self) {
  const std::vector<int> numbers = mooncake_layer_numbers(self.geometry);
  std::vector<MooncakeRegion> regions;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto bytes = static_cast<std::uint64_t>(self.block_bytes(i));
    regions.push_back({.layer = name_of(self.geometry.layers[i], numbers[i]),
                       .layer_index = numbers[i],
                       .group = self.regions.group_of_layer[i],
                       .address = region_address(i),
                       .stride = bytes,
                       .payload = bytes});
  }
  return regions;
}

std::uint64_t mooncake_sum_seed(std::string_view transfer,
                                std::span<const std::uint64_t> first_rows) {
  return kv_checksum(std::as_bytes(first_rows), block_sum_seed(transfer));
}

MooncakeLanding::MooncakeLanding(const MooncakeSelf& self, int num_tokens, int from,
                                 std::int64_t first)
    : self_(self),
      first_(first),
      from_(from),
      ratio_(self.ratio()),
      content_(
          kv_content(with_block_size(self.geometry, self.block_size * ratio_), num_tokens, from)) {
  const int size = self.block_size * ratio_;
  const int total = (num_tokens + size - 1) / size;
  std::vector<int> first_block(self.regions.num_groups, total);
  for (const KvStrip& strip : content_.strips) {
    const auto layer = static_cast<std::size_t>(strip.layer);
    int& begin = first_block[static_cast<std::size_t>(self.regions.group_of_layer[layer])];
    if (strip.rows > 0) begin = std::min(begin, strip.first / size);
  }
  for (const int begin : first_block) {
    auto& ids = blocks_.emplace_back(static_cast<std::size_t>(total - begin));
    std::iota(ids.begin(), ids.end(), first_ + num_ids_);
    num_ids_ += total - begin;
  }
  for (std::size_t i = 0; i < self.geometry.layers.size(); ++i) {
    const int per_id = self.geometry.layers[i].is_state() ? 1 : ratio_;
    layers_.push_back({bytes_, self.block_bytes(i), per_id});
    bytes_ += static_cast<std::int64_t>(num_blocks(i)) * layers_[i].block_bytes;
  }
}

std::optional<std::int64_t> MooncakeLanding::place(std::uint64_t address,
                                                   std::uint64_t bytes) const {
  const std::uint64_t region = address / kMooncakeRegionBytes;
  const std::uint64_t offset = address % kMooncakeRegionBytes;
  if (bytes == 0 || region == 0 || region > layers_.size()) return std::nullopt;
  const auto layer = static_cast<std::size_t>(region - 1);
  const auto& ids = ids_of(layer);
  if (ids.empty()) return std::nullopt;
  const auto block = static_cast<std::uint64_t>(layers_[layer].block_bytes * layers_[layer].per_id);
  const std::uint64_t begin = static_cast<std::uint64_t>(ids.front()) * block;
  const std::uint64_t size = ids.size() * block;
  if (offset < begin || offset - begin >= size || bytes > size - (offset - begin))
    return std::nullopt;
  return layers_[layer].at + static_cast<std::int64_t>(offset - begin);
}

void MooncakeLanding::arrived(std::int64_t at, std::int64_t bytes) {
  std::size_t most = 0;
  for (std::size_t i = 0; i < layers_.size(); ++i) most += kMostPartsOfBlock * num_blocks(i);
  if (arrived_.size() >= most)
    throw KvLost(KvLossReason::corrupt, fmt::format("more than {} parts have arrived", most));
  std::int64_t end = at + bytes;
  auto next = arrived_.upper_bound(at);
  if (next != arrived_.begin() && std::prev(next)->second >= at) next = std::prev(next);
  while (next != arrived_.end() && next->first <= end) {
    at = std::min(at, next->first);
    end = std::max(end, next->second);
    arrived_bytes_ -= next->second - next->first;
    next = arrived_.erase(next);
  }
  arrived_[at] = end;
  arrived_bytes_ += end - at;
}

void MooncakeLanding::has_from(std::span<const std::uint64_t> first_rows) {
  if (first_rows.empty()) return;
  if (first_rows.size() != layers_.size())
    throw KvLost(KvLossReason::corrupt, fmt::format("quire_first_rows has {} layers, not {}",
                                                    first_rows.size(), layers_.size()));
  first_rows_.assign(first_rows.begin(), first_rows.end());
  const KvGeometry rows = with_block_size(self_.geometry, 1);
  for (KvStrip& strip : content_.strips) {
    const auto layer = static_cast<std::size_t>(strip.layer);
    const int needed = std::max(first_kept_token(rows.layers[layer], content_.num_tokens), from_);
    if (first_rows[layer] > static_cast<std::uint64_t>(needed))
      throw KvLost(KvLossReason::incompatible,
                   fmt::format("the peer keeps {} from token {} on, and {} is needed",
                               rows.layers[layer].name, first_rows[layer], needed));
    const int missing = static_cast<int>(first_rows[layer]) - strip.first;
    if (rows.layers[layer].is_state() && missing != 0)
      throw KvLost(KvLossReason::corrupt,
                   fmt::format("the peer keeps the state of {} after token {}, not {}",
                               rows.layers[layer].name, first_rows[layer], strip.first));
    if (missing <= 0 || missing > strip.rows) continue;
    strip.first += missing;
    strip.rows -= missing;
    strip.offset += missing * strip.row_bytes;
  }
}

std::span<const std::byte> MooncakeLanding::block(std::span<const std::byte> landing,
                                                  std::size_t layer, std::size_t index) const {
  const auto [at, bytes, per_id] = layers_[layer];
  return landing.subspan(static_cast<std::size_t>(at) + index * static_cast<std::size_t>(bytes),
                         static_cast<std::size_t>(bytes));
}

std::uint64_t MooncakeLanding::sum(std::string_view transfer,
                                   std::span<const std::byte> landing) const {
  std::uint64_t sum = mooncake_sum_seed(transfer, first_rows_);
  for (std::size_t i = 0; i < layers_.size(); ++i)
    for (std::size_t index = 0; index < num_blocks(i); ++index)
      sum = kv_checksum(block(landing, i, index), sum);
  return sum;
}

void MooncakeLanding::fill(std::span<const std::byte> landing, int num_ranks,
                           std::span<std::byte> content) const {
  const int size = self_.block_size * ratio_;
  const int total = (content_.num_tokens + size - 1) / size;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const KvLayerGeometry& layer = self_.geometry.layers[i];
    if (layer.is_state()) {
      const auto strip = std::ranges::find(content_.strips, static_cast<int>(i), &KvStrip::layer);
      ranks_to_state(layer.state, block(landing, i, 0), num_ranks,
                     content.subspan(static_cast<std::size_t>(strip->offset),
                                     static_cast<std::size_t>(layer.row_bytes)));
      continue;
    }
    BlockPlace place{.layer = i,
                     .first_token = (total - static_cast<int>(ids_of(i).size())) * size,
                     .num_tokens = self_.block_size,
                     .first_head = 0,
                     .num_heads = layer.heads};
    for (std::size_t index = 0; index < num_blocks(i); ++index) {
      block_to_content(self_.geometry, place, block(landing, i, index), content_, content);
      place.first_token += self_.block_size;
    }
  }
}

}  // namespace quire
