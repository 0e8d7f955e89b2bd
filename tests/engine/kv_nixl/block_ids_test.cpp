// Which blocks of another server fill which here, held against vLLM's connector.

#include "engine/kv_nixl/block_ids.h"

#include <catch2/catch.hpp>

#include "tests/engine/kv_nixl/mapping_vectors.h"
#include "tests/support/conformance.h"

namespace quire::test {
namespace {

std::string error_of(simdjson::dom::element expected) {
  return has(expected, "error") ? std::string(std::string_view(expected["error"]["code"])) : "";
}

// Of a cached prefix that is beside states, the vectors' ids are the blocks' places.
std::int64_t first_here(simdjson::dom::element one, const std::vector<std::int64_t>& local) {
  return has_defect(one, "front_trim_with_cached_prefix") ? local.front() : 0;
}

}  // namespace

TEST_CASE("the scheduler's blocks become the kernel's", "[nixl][conformance]") {
  require_conformance("nixl_expansion/1", 28, [](simdjson::dom::element one) {
    const auto kinds = kinds_of(one);
    for (const auto& [name, ratio] : {std::pair("as_local", number_of(one, "local_ratio")),
                                      std::pair("as_remote", number_of(one, "remote_ratio"))})
      for (std::size_t group = 0; group < kinds.size(); ++group)
        expect_equal(name, text_of(numbers_of(one["expected"][name].at(group))),
                     text_of(kernel_blocks(numbers_of(one["block_ids"].at(group)), ratio,
                                           kinds[group] == "mamba")));
  });
}

TEST_CASE("blocks there are paired with blocks here", "[nixl][conformance]") {
  require_conformance("nixl_trim/1", 36, [](simdjson::dom::element one) {
    const auto kinds = kinds_of(one);
    const simdjson::dom::element expected =
        has(one, "corrected") ? one["corrected"] : one["expected"];
    std::string error;
    for (std::size_t group = 0; group < kinds.size(); ++group) {
      const auto local = numbers_of(one["local_kernel_ids"].at(group));
      const auto remote = numbers_of(one["remote_kernel_ids"].at(group));
      BlockAlignment alignment{
          .tail = !has_states(kinds),
          .local_first = first_here(one, local),
          .largest_ratio = std::max(number_of(one, "local_ratio"), number_of(one, "remote_ratio"))};
      // How many tokens there were is not said there, but by what is right.
      if (alignment.local_first > 0)
        alignment.end = numbers_of(expected["local"].at(group)).back() + 1;
      const auto paired = kinds[group] == "mamba" ? pair_states(local, remote)
                                                  : pair_blocks(local, remote, alignment);
      if (!paired) {
        error = paired.error().field;
        break;
      }
      if (has(expected, "error")) continue;
      expect_equal("local", text_of(numbers_of(expected["local"].at(group))),
                   text_of(paired->local));
      expect_equal("remote", text_of(numbers_of(expected["remote"].at(group))),
                   text_of(paired->remote));
    }
    expect_equal("error", error_of(expected), error);
  });
}

// vLLM numbers a descriptor per block, region by region; of states one per part. As addresses these
// numbers are what is read.
TEST_CASE("blocks are read in vLLM's order", "[nixl][conformance]") {
  require_conformance("nixl_desc_ids/1", 14, [](simdjson::dom::element one) {
    const auto kinds = kinds_of(one);
    const auto blocks = static_cast<std::uint64_t>(number_of(one, "num_kernel_blocks"));
    const std::uint64_t states = blocks / static_cast<std::uint64_t>(number_of(one, "ratio"));
    const auto regions = static_cast<std::uint64_t>(number_of(one, "num_fa_regions"));
    const auto layers = static_cast<std::uint64_t>(number_of(one, "num_layers"));
    std::vector<std::uint64_t> order;
    const auto read = [&](std::size_t group, std::uint64_t region) {
      const auto ids = numbers_of(one["block_ids"].at(group));
      const auto step = static_cast<std::int64_t>(states);
      std::vector<BlockCopy> parts = {{0, 0, 1}};
      std::uint64_t first = region * blocks;
      if (kinds[group] == "mamba") {
        first = regions * blocks + 4 * region * states;
        for (int part = 1; part < 4; ++part) parts.push_back({part * step, 0, 1});
      }
      for (const RegionCopy& copy : region_copies({ids, ids}, {}, {first, 1}, parts))
        order.push_back(copy.remote);
    };
    if (has_states(kinds)) {
      for (std::size_t group = 0; group < kinds.size(); ++group)
        for (std::uint64_t region = 0; region < (kinds[group] == "mamba" ? layers : regions);
             ++region)
          read(group, region);
    } else {
      for (std::uint64_t region = 0; region < regions; ++region)
        for (std::size_t group = 0; group < kinds.size(); ++group) read(group, region);
    }
    expect_equal("desc_ids", text_of(numbers_of(one["expected"]["desc_ids"])), text_of(order));
  });
}

}  // namespace quire::test
