#include "engine/kv_plan/pool_layout.h"

#include <algorithm>
#include <map>

#include "engine/kv_plan/latent_groups.h"

namespace quire {
namespace {

bool has_page_classes(const std::vector<KvGroup>& groups) {
  return groups.size() > 1 && std::all_of(groups.begin(), groups.end(), [](const KvGroup& group) {
           return group.per_layer_specs;
         });
}

bool is_one_per_layer_group(const std::vector<KvGroup>& groups) {
  return groups.size() == 1 && groups.front().per_layer_specs;
}

std::size_t longest_group(const std::vector<KvGroup>& groups) {
  std::size_t longest = 0;
  for (const KvGroup& group : groups) longest = std::max(longest, group.layers.size());
  return longest;
}

// Layers of each page size, by index in their group: what shares a tensor.
using PageClasses = std::map<std::size_t, std::vector<std::vector<std::string>>>;

// The pages of the first group, as on the whole model where this worker has none of its layers, and
// of whatever else is here.
PageClasses page_classes(const std::vector<KvGroup>& groups, const std::vector<KvGroup>& model) {
  PageClasses classes;
  const KvGroup& first = groups.front().layers.empty() ? model.front() : groups.front();
  for (const KvSpec& spec : first.layer_specs) classes[page_bytes(spec)];
  std::size_t tuples = 0;
  for (const KvGroup& group : groups) tuples = std::max(tuples, longest_page_run(group));
  for (const KvGroup& group : groups) {
    std::map<std::size_t, std::size_t> next;
    for (std::size_t i = 0; i < group.layers.size(); ++i) {
      const std::size_t page = page_bytes(group.layer_specs[i]);
      auto& tensors = classes[page];
      tensors.resize(tuples);
      tensors[next[page]++].push_back(group.layers[i]);
    }
  }
  for (auto& [page, tensors] : classes) tensors.resize(tuples);
  return classes;
}

std::vector<KvTensor> class_tensors(const PageClasses& classes, std::size_t num_blocks) {
  std::vector<KvTensor> tensors;
  for (std::size_t i = 0; i < classes.begin()->second.size(); ++i)
    for (const auto& [page, layers] : classes) tensors.push_back({page * num_blocks, layers[i]});
  return tensors;
}

}  // namespace

std::size_t pool_bytes_per_block(const std::vector<KvGroup>& groups,
                                 const std::vector<KvGroup>& model) {
  if (longest_group(groups) == 0) return 0;
  if (is_one_per_layer_group(groups)) return groups.front().page_bytes;
  if (!has_page_classes(groups)) return longest_group(groups) * groups.front().page_bytes;
  std::size_t bytes = 0;
  for (const auto& [page, layers] : page_classes(groups, model)) bytes += page * layers.size();
  return bytes;
}

std::vector<KvTensor> pool_tensors(const std::vector<KvGroup>& groups,
                                   const std::vector<KvGroup>& model, std::int64_t num_blocks) {
  const auto blocks = static_cast<std::size_t>(num_blocks);
  std::vector<KvTensor> tensors;
  if (longest_group(groups) == 0) return tensors;
  if (has_page_classes(groups)) return class_tensors(page_classes(groups, model), blocks);
  for (std::size_t i = 0; i < longest_group(groups); ++i) {
    KvTensor& tensor = tensors.emplace_back();
    for (const KvGroup& group : groups) {
      if (i >= group.layers.size()) continue;
      tensor.size = page_bytes(group.spec_of(i)) * blocks;
      tensor.shared_by.push_back(group.layers[i]);
    }
  }
  return tensors;
}

}  // namespace quire
