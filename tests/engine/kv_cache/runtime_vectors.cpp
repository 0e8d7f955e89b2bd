#include "tests/engine/kv_cache/runtime_vectors.h"

namespace quire::test {

using simdjson::dom::element;

bool has(element object, std::string_view field) {
  element value;
  return object[field].get(value) == simdjson::SUCCESS && !value.is_null();
}

int int_or(element object, std::string_view field, int fallback) {
  return has(object, field) ? static_cast<int>(std::int64_t(object[field])) : fallback;
}

bool bool_or(element object, std::string_view field, bool fallback) {
  return has(object, field) ? bool(object[field]) : fallback;
}

std::string text_or(element object, std::string_view field, const std::string& fallback) {
  return has(object, field) ? std::string(std::string_view(object[field])) : fallback;
}

std::vector<int> ints(element list) {
  std::vector<int> values;
  for (const element item : list.get_array()) {
    values.push_back(static_cast<int>(std::int64_t(item)));
  }
  return values;
}

std::vector<std::vector<int>> int_lists(element list) {
  std::vector<std::vector<int>> lists;
  for (const element item : list.get_array()) lists.push_back(ints(item));
  return lists;
}

GroupConfig group_config(element group) {
  static const std::vector<std::pair<std::string_view, KvKind>> kKinds{
      {"full", KvKind::full},
      {"sliding_window", KvKind::sliding_window},
      {"chunked_local", KvKind::chunked_local},
      {"mla", KvKind::mla},
      {"sliding_window_mla", KvKind::sliding_window_mla},
      {"mamba", KvKind::mamba}};
  GroupConfig config;
  const std::string_view kind = group["kind"];
  bool known = false;
  for (const auto& [name, value] : kKinds) {
    if (name != kind) continue;
    config.spec.kind = value;
    known = true;
  }
  if (!known) throw std::runtime_error("unknown kind " + std::string(kind));
  config.spec.block_size = int_or(group, "block_size", 0);
  config.spec.sliding_window = int_or(group, "sliding_window", 0);
  config.spec.attention_chunk_size = int_or(group, "attention_chunk_size", 0);
  config.spec.num_speculative_blocks = int_or(group, "num_speculative_blocks", 0);
  const std::string mode = text_or(group, "mamba_cache_mode", "none");
  config.spec.state_cache_mode = mode == "align" ? StateCacheMode::align
                                 : mode == "all" ? StateCacheMode::all
                                                 : StateCacheMode::none;
  config.is_eagle_group = bool_or(group, "is_eagle_group", false);
  return config;
}

std::vector<GroupConfig> group_configs(element groups) {
  std::vector<GroupConfig> configs;
  for (const element group : groups.get_array()) configs.push_back(group_config(group));
  return configs;
}

std::string text(std::span<const int> list) {
  std::string line;
  for (const int value : list) line += (line.empty() ? "" : " ") + std::to_string(value);
  return line;
}

std::string text(const std::vector<std::vector<int>>& lists) {
  std::string line;
  for (const auto& list : lists) line += "[" + text(list) + "]";
  return line;
}

std::vector<BlockId> free_order(const BlockPool& pool) {
  std::vector<BlockId> order;
  const FreeList& list = pool.free_list();
  for (BlockId id = list.front(); id != FreeList::kNoBlock; id = list.after(id)) {
    order.push_back(id);
  }
  return order;
}

std::vector<BlockId> cached_blocks(const BlockPool& pool) {
  std::vector<BlockId> ids;
  for (BlockId id = 0; id <= pool.num_usable(); ++id) {
    if (pool.enable_caching() && pool.index().holds(id)) ids.push_back(id);
  }
  return ids;
}

}  // namespace quire::test
