#include <catch2/catch.hpp>
#include <memory>

#include "engine/runner/block_tables.h"
#include "tests/support/conformance.h"

namespace quire {
namespace {

using simdjson::dom::element;

template <class T = std::int32_t>
std::vector<T> ints(element list) {
  std::vector<T> values;
  for (const element value : list.get_array())
    values.push_back(static_cast<T>(std::int64_t(value)));
  return values;
}

int integer(element value) { return static_cast<int>(std::int64_t(value)); }

// Tables of the geometry in `config`, with their input buffers.
struct Setup {
  explicit Setup(element config, ContextParallel cp = {}) {
    const auto block_sizes = ints(config["block_sizes"]);
    const auto kernel_sizes = ints(config["kernel_block_sizes"]);
    const auto max_blocks = ints(config["max_blocks"]);
    const int max_reqs = integer(config["max_num_reqs"]);
    std::vector<TableGeometry> groups;
    std::vector<std::span<std::int32_t>> spans;
    inputs.resize(block_sizes.size());
    for (std::size_t g = 0; g < block_sizes.size(); ++g) {
      groups.push_back({block_sizes[g], kernel_sizes[g], max_blocks[g]});
      inputs[g].resize(static_cast<std::size_t>(groups[g].columns()) * max_reqs);
      spans.emplace_back(inputs[g]);
    }
    tables = std::make_unique<BlockTables>(groups, max_reqs, spans, cp);
  }

  void append(int slot, element ids_per_group) {
    int group = 0;
    for (const element ids : ids_per_group.get_array()) {
      tables->append(slot, group++, ints<BlockId>(ids));
    }
  }

  std::vector<std::vector<std::int32_t>> inputs;
  std::unique_ptr<BlockTables> tables;
};

void check_gather(Setup& setup, element op) {
  const auto slots = ints(op["idx_mapping"]);
  setup.tables->gather(slots, integer(op["num_reqs_padded"]));
  std::size_t group = 0;
  for (const element table : op["expected"]["tables"].get_array()) {
    const int columns = setup.tables->geometry(static_cast<int>(group)).columns();
    std::size_t at = 0;
    for (const element row : table.get_array()) {
      test::expect_equal("columns", row.get_array().size(), columns);
      for (const element id : row.get_array()) {
        const std::int32_t actual = setup.inputs[group][at++];
        if (!id.is_null()) test::expect_equal("table entry", std::int64_t(id), actual);
      }
    }
    std::size_t row = 0;
    for (const element count : op["expected"]["num_blocks"].at(group).get_array()) {
      if (row >= slots.size()) break;
      test::expect_equal("num_blocks", std::int64_t(count),
                         setup.tables->num_kernel_blocks(static_cast<int>(group), slots[row++]));
    }
    ++group;
  }
}

TEST_CASE("block tables gather as the vectors say", "[engine][runner][conformance]") {
  const auto tally = test::run_conformance("gather/1", [](element vector_case) {
    Setup setup(vector_case["config"]);
    for (const element op : vector_case["ops"].get_array()) {
      if (std::string_view(op["op"]) == "gather") {
        check_gather(setup, op);
        continue;
      }
      const int slot = integer(op["req"]);
      if (bool(op["overwrite"])) setup.tables->clear(slot);
      setup.append(slot, op["block_ids"]);
    }
  });
  INFO(tally.report);
  CHECK(tally.passed > 0);
  CHECK(tally.failed == 0);
}

// What the runner does for one group: each request's span, then padding.
std::vector<std::int64_t> slot_mapping(const BlockTables& tables, int group, element input) {
  const auto query_start = ints(input["query_start_loc"]);
  const auto positions = ints(input["positions"]);
  const auto slots = ints(input["idx_mapping"]);
  std::vector<std::int64_t> out(integer(input["max_num_batched_tokens"]), kPadSlot);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const int first = query_start[i];
    const int count = query_start[i + 1] - first;
    if (count == 0) continue;
    tables.slot_mapping(group, slots[i], positions[first], std::span(out).subspan(first, count));
  }
  return out;
}

TEST_CASE("slots are mapped as the vectors say", "[engine][runner][conformance]") {
  const auto tally = test::run_conformance("slot_mapping/1", [](element vector_case) {
    const element input = vector_case["input"];
    Setup setup(input, {.size = integer(input["cp_size"]),
                        .rank = integer(input["cp_rank"]),
                        .interleave = integer(input["cp_interleave"])});
    int slot = 0;
    for (const element ids : input["request_block_ids"].get_array()) setup.append(slot++, ids);
    int group = 0;
    for (const element expected : vector_case["expected"]["slot_mapping"].get_array()) {
      const auto actual = slot_mapping(*setup.tables, group++, input);
      const auto wanted = ints<std::int64_t>(expected);
      test::expect_equal("length", static_cast<std::int64_t>(wanted.size()), actual.size());
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        test::expect_equal("slot of token " + std::to_string(i), wanted[i], actual[i]);
      }
    }
  });
  INFO(tally.report);
  CHECK(tally.passed > 0);
  CHECK(tally.failed == 0);
}

}  // namespace
}  // namespace quire
