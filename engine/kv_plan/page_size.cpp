#include "engine/kv_plan/page_size.h"

#include <algorithm>

namespace quire {
namespace {

bool is_hidden_state(const LayerKvSpec& layer) { return layer.spec.kind == KvKind::hidden_state; }

KvPlanError no_multiple(const LayerKvSpec& layer, std::size_t largest) {
  return {KvPlanErrorCode::page_unify,
          "a block of layer " + layer.layer + " takes " + std::to_string(page_bytes(layer.spec)) +
              " bytes, of which the largest block's " + std::to_string(largest) +
              " bytes are not a multiple, so the layers cannot share a pool"};
}

// Hidden states get as many tokens as fit the common page.
void fit_into(KvSpec& spec, std::size_t page) {
  spec.block_size = 1;
  const std::size_t token = unpadded_page_bytes(spec);
  spec.block_size = static_cast<int>(std::max<std::size_t>(page / token, 1));
  spec.page_size_padded = page;
}

}  // namespace

PlanResult<std::vector<LayerKvSpec>> unify_page_sizes(std::vector<LayerKvSpec> layers) {
  std::size_t largest = 0;
  for (const LayerKvSpec& layer : layers)
    if (!is_hidden_state(layer)) largest = std::max(largest, page_bytes(layer.spec));
  for (LayerKvSpec& layer : layers) {
    if (is_hidden_state(layer)) continue;
    const std::size_t page = page_bytes(layer.spec);
    if (page == 0 || largest % page != 0) return no_multiple(layer, largest);
    KvSpec grown = layer.spec;
    grown.block_size *= static_cast<int>(largest / page);
    // A state, or a padded page, does not grow with the block.
    if (unpadded_page_bytes(grown) > largest || page_bytes(grown) != largest)
      return no_multiple(layer, largest);
    layer.spec = grown;
  }
  std::stable_partition(layers.begin(), layers.end(),
                        [](const LayerKvSpec& layer) { return !is_hidden_state(layer); });
  for (LayerKvSpec& layer : layers)
    if (is_hidden_state(layer)) fit_into(layer.spec, largest);
  return layers;
}

}  // namespace quire
