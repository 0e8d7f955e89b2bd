#include "engine/kv_plan/latent_groups.h"

#include <algorithm>
#include <map>
#include <optional>

namespace quire {
namespace {

using Layers = std::vector<LayerKvSpec>;

KvPlanError refuse(const LayerKvSpec& layer, const std::string& why) {
  return {KvPlanErrorCode::page_unify, "layer " + layer.layer + " " + why};
}

// Windowed latents with one block size and window, in first-seen order.
std::vector<Layers> by_window(const Layers& layers) {
  std::vector<Layers> containers;
  for (const LayerKvSpec& layer : layers) {
    if (layer.spec.kind != KvKind::sliding_window_mla) continue;
    auto same = std::find_if(containers.begin(), containers.end(), [&](const Layers& container) {
      const KvSpec& spec = container.front().spec;
      return spec.block_size == layer.spec.block_size &&
             spec.sliding_window == layer.spec.sliding_window;
    });
    if (same == containers.end()) same = containers.insert(same, Layers{});
    same->push_back(layer);
  }
  return containers;
}

// Layers by page size; pages in the order in which they first appear.
std::vector<Layers> by_page(const Layers& layers) {
  std::vector<Layers> runs;
  for (const LayerKvSpec& layer : layers) {
    const std::size_t page = page_bytes(layer.spec);
    auto same = std::find_if(runs.begin(), runs.end(), [&](const Layers& run) {
      return page_bytes(run.front().spec) == page;
    });
    if (same == runs.end()) same = runs.insert(same, Layers{});
    same->push_back(layer);
  }
  return runs;
}

std::size_t longest_run(const Layers& layers) {
  std::size_t longest = 0;
  for (const Layers& run : by_page(layers)) longest = std::max(longest, run.size());
  return longest;
}

// Grows each page to the nearest that group 0 has, so that both can use the same tensors.
std::optional<KvPlanError> pad_pages(Layers& layers, const std::map<std::size_t, int>& pages) {
  for (LayerKvSpec& layer : layers) {
    const auto page = pages.lower_bound(page_bytes(layer.spec));
    if (page == pages.end()) return refuse(layer, "has a larger page than any full latent layer");
    if (page_bytes(layer.spec) != page->first) layer.spec.page_size_padded = page->first;
  }
  return std::nullopt;
}

// Tuples of one layer per page size, every num_groups-th tuple to a group.
PlanResult<std::vector<KvGroup>> split(const Layers& layers, std::size_t tuples_per_group) {
  const std::vector<Layers> runs = by_page(layers);
  const std::size_t num_tuples = runs.front().size();
  for (const Layers& run : runs)
    if (run.size() != num_tuples)
      return refuse(run.front(), "has a page size that is not as frequent as its group's others");
  const std::size_t num_groups = (num_tuples + tuples_per_group - 1) / tuples_per_group;
  std::vector<KvGroup> groups;
  for (std::size_t first = 0; first < num_groups; ++first) {
    Layers members;
    for (std::size_t i = first; i < num_tuples; i += num_groups)
      for (const Layers& run : runs) members.push_back(run[i]);
    groups.push_back(per_layer_group(members));
  }
  return groups;
}

void mark_eagle(std::vector<KvGroup>& groups, const std::string& last_layer) {
  for (KvGroup& group : groups)
    group.is_eagle_group =
        std::find(group.layers.begin(), group.layers.end(), last_layer) != group.layers.end();
}

}  // namespace

std::size_t longest_page_run(const KvGroup& group) {
  std::map<std::size_t, std::size_t> count;
  std::size_t longest = 0;
  for (std::size_t i = 0; i < group.layers.size(); ++i)
    longest = std::max(longest, ++count[page_bytes(group.spec_of(i))]);
  return longest;
}

std::size_t least_padding(const std::vector<std::size_t>& counts, std::size_t at_least) {
  const std::size_t most = *std::max_element(counts.begin(), counts.end());
  std::size_t best = at_least, best_padding = SIZE_MAX;
  for (std::size_t n = at_least; n <= most; ++n) {
    std::size_t padding = 0;
    for (const std::size_t count : counts) padding += (count + n - 1) / n * n - count;
    if (padding <= best_padding) best = n, best_padding = padding;
  }
  return best;
}

PlanResult<std::vector<KvGroup>> make_latent_groups(const Layers& layers, bool use_eagle) {
  Layers full;
  std::map<std::size_t, int> pages;
  for (const LayerKvSpec& layer : layers) {
    if (layer.spec.kind == KvKind::mla) {
      full.push_back(layer);
      ++pages[page_bytes(layer.spec)];
    } else if (layer.spec.kind != KvKind::sliding_window_mla) {
      return refuse(layer, "cannot share a pool with windowed latent layers");
    }
  }
  if (full.empty()) return refuse(layers.front(), "has no full latent layer to share a pool with");

  std::vector<Layers> windowed = by_window(layers);
  std::vector<std::size_t> counts = {longest_run(full)};
  for (const Layers& container : windowed) counts.push_back(longest_run(container));
  const std::size_t tuples = least_padding(counts, counts.front());

  std::vector<KvGroup> groups = {per_layer_group(full)};
  for (Layers& container : windowed) {
    if (auto error = pad_pages(container, pages)) return *error;
    auto parts = split(container, tuples);
    if (parts.has_error()) return parts.error();
    for (KvGroup& part : *parts) groups.push_back(std::move(part));
  }
  if (use_eagle) mark_eagle(groups, layers.back().layer);
  return groups;
}

}  // namespace quire
