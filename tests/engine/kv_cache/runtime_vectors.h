#pragma once
// Reading the conformance vectors of the KV runtime and the scheduler.

#include <simdjson.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "engine/kv_cache/block_pool.h"
#include "engine/kv_cache/group_manager.h"

namespace quire::test {

// Defaults where the field is absent or null.
int int_or(simdjson::dom::element object, std::string_view field, int fallback);
bool bool_or(simdjson::dom::element object, std::string_view field, bool fallback);
std::string text_or(simdjson::dom::element object, std::string_view field,
                    const std::string& fallback);
bool has(simdjson::dom::element object, std::string_view field);  // there and not null

std::vector<int> ints(simdjson::dom::element list);
std::vector<std::vector<int>> int_lists(simdjson::dom::element list);

GroupConfig group_config(simdjson::dom::element group);
std::vector<GroupConfig> group_configs(simdjson::dom::element groups);

// "1 2 3", and "[1 2] [3]"
std::string text(std::span<const int> list);
std::string text(const std::vector<std::vector<int>>& lists);

std::vector<BlockId> free_order(const BlockPool& pool);
std::vector<BlockId> cached_blocks(const BlockPool& pool);

}  // namespace quire::test
