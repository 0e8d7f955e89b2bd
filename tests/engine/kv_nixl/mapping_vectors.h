#pragma once
// Members of the conformance vectors of vLLM's NIXL connector.

#include <simdjson.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/kv_nixl/source_ranks.h"

namespace quire::test {

inline std::vector<std::int64_t> numbers_of(simdjson::dom::element list) {
  std::vector<std::int64_t> numbers;
  for (const auto one : list.get_array()) numbers.push_back(one.get_int64());
  return numbers;
}
template <class Numbers>
std::string text_of(const Numbers& numbers) {
  std::string text;
  for (const auto one : numbers) text += std::to_string(one) + " ";
  return text;
}
inline int number_of(simdjson::dom::element object, std::string_view name) {
  return static_cast<int>(object[name].get_int64());
}
inline bool has(simdjson::dom::element object, std::string_view name) {
  return !object[name].error() && !object[name].is_null();
}
inline std::vector<std::string_view> kinds_of(simdjson::dom::element object) {
  std::vector<std::string_view> kinds;
  for (const auto one : object["group_kinds"].get_array()) kinds.push_back(one.get_string());
  return kinds;
}
inline bool has_states(const std::vector<std::string_view>& kinds) {
  return std::ranges::find(kinds, "mamba") != kinds.end();
}
inline RankPair ranks_of(simdjson::dom::element object) {
  return {.local_ranks = number_of(object, "local_tp_size"),
          .local_rank = number_of(object, "local_tp_rank"),
          .remote_ranks = number_of(object, "remote_tp_size"),
          .kv_heads = number_of(object, "total_kv_heads"),
          .has_latents = object["is_mla"].get_bool()};
}

}  // namespace quire::test
