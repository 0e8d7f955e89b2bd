#include "engine/kv_transfer/blocks/shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "engine/kv_transfer/blocks/layout.h"
#include "engine/kv_transfer/blocks/state_layout.h"

namespace quire {
namespace {

// Regions of states alone are cut as the others, whose blocks vLLM makes equally large.
std::vector<std::int64_t> region_bytes_of(const KvGeometry& geometry, const BlockRegions& regions,
                                          int block_size) {
  std::vector<std::int64_t> bytes(regions.num_regions, 0);
  std::int64_t largest_state = 0;
  for (std::size_t i = 0; i < geometry.layers.size(); ++i) {
    const KvLayerGeometry& layer = geometry.layers[i];
    if (layer.is_state()) {
      largest_state = std::max(largest_state, layer.row_bytes);
      continue;
    }
    std::int64_t& region = bytes[regions.region_of_layer[i]];
    const std::int64_t wanted = block_bytes(layer, block_size, layer.heads);
    if (region != 0 && region != wanted)
      throw Failure(Error{ErrorCode::unsupported,
                          fmt::format("KvTransferConfig::plane nixl: layer {} has blocks of {} "
                                      "bytes where others of its tensor have {}",
                                      layer.name, wanted, region),
                          "KvTransferConfig::plane"});
    region = wanted;
  }
  const std::int64_t largest = *std::ranges::max_element(bytes);
  std::ranges::replace(bytes, 0, largest > 0 ? largest : largest_state);
  return bytes;
}

}  // namespace

std::int64_t BlockShape::kernel_bytes() const {
  return std::reduce(region_bytes.begin(), region_bytes.end());
}

BlockShape block_shape(const KvGeometry& geometry, const BlockRegions& regions, int block_size) {
  BlockShape shape;
  if (geometry.layers.empty()) return shape;
  shape.region_bytes = region_bytes_of(geometry, regions, block_size);
  shape.largest = *std::ranges::max_element(shape.region_bytes);
  for (std::size_t i = 0; i < geometry.layers.size(); ++i) {
    const KvLayerGeometry& layer = geometry.layers[i];
    if (!layer.is_state()) continue;
    const std::int64_t block = shape.region_bytes[regions.region_of_layer[i]];
    shape.ratio =
        std::max(shape.ratio, static_cast<int>(blocks_of_state(state_bytes(layer.state), block)));
    shape.largest = std::max(shape.largest, layer.row_bytes);
  }
  return shape;
}

const KvStateGeometry* first_state(const KvGeometry& geometry) {
  const auto found = std::ranges::find_if(geometry.layers, &KvLayerGeometry::is_state);
  return found == geometry.layers.end() ? nullptr : &found->state;
}

bool holds_state(const KvGeometry& geometry, const BlockRegions& regions, std::size_t group) {
  const auto found = std::ranges::find(regions.group_of_layer, static_cast<int>(group));
  return found != regions.group_of_layer.end() &&
         geometry.layers[static_cast<std::size_t>(found - regions.group_of_layer.begin())]
             .is_state();
}

void check_block_geometry(std::string_view plane, const KvGeometry& geometry, bool has_one_size) {
  const KvStateGeometry* const first = first_state(geometry);
  for (const KvLayerGeometry& layer : geometry.layers) {
    if (!layer.is_state()) continue;
    const char* what = layer.state.conv_rows == 0 ? "recurrent states of this form"
                       : has_one_size && !(layer.state == *first)
                           ? "recurrent states of several sizes"
                           : nullptr;
    if (what != nullptr)
      throw Failure(Error{ErrorCode::unsupported,
                          fmt::format("KvTransferConfig::plane {} does not carry {} (layer {}); "
                                      "local does",
                                      plane, what, layer.name),
                          "KvTransferConfig::plane"});
  }
}

}  // namespace quire
