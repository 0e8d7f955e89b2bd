// Which ranks of another server hold what is needed here, and which bytes, against vLLM's
// connector.

#include "engine/kv_nixl/source_ranks.h"

#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "engine/kv_nixl/block_ids.h"
#include "engine/kv_nixl/peer_fit.h"
#include "tests/engine/kv_nixl/mapping_vectors.h"
#include "tests/support/conformance.h"

namespace quire::test {
namespace {

using Element = simdjson::dom::element;

void check_slices(Element expected, const std::vector<BlockCopy>& copies,
                  std::int64_t BlockCopy::*at) {
  std::string want, got;
  for (const auto slice : expected.get_array()) want += text_of(numbers_of(slice));
  for (std::size_t i = 0; i + 1 < copies.size(); ++i)  // the last is not the convolution's
    got += text_of(std::vector{copies[i].*at, copies[i].bytes});
  expect_equal("slices", want, got);
}

StateBytes state_of(const std::vector<std::int64_t>& channels, std::int64_t row_bytes,
                    std::int64_t rest) {
  StateBytes state{.projections = channels, .rest = rest};
  for (std::int64_t& bytes : state.projections) bytes *= row_bytes;
  return state;
}

struct Plan {
  Element in;
  RankPair ranks = ranks_of(in);
  SourceRanks sources = source_ranks(ranks);
  std::int64_t number(const char* name) const { return in[name].get_int64(); }

  // The bytes of the projections are said of the whole model.
  StateBytes state() const {
    return state_of(numbers_of(in["state_projection_dims"]), number("state_row_bytes"),
                    numbers_of(in["local_state_bytes"])[1] * ranks.local_ranks);
  }
  StateBytes local_state() const { return remote_state(state(), -ranks.local_ranks); }

  using Bytes = std::map<std::uint64_t, std::uint64_t>;  // by byte here, where it comes from
  void add(std::map<int, Bytes>& bytes, const PairedBlocks& blocks, bool is_state, int rank) const {
    const auto side = [&](const char* len, const char* ratio, std::uint64_t region) {
      const auto stride = static_cast<std::uint64_t>(number(len) * (is_state ? number(ratio) : 1));
      return RegionPlace{region * static_cast<std::uint64_t>(number("region_stride")), stride};
    };
    const auto parts = is_state ? state_copies(sources, rank, local_state())
                                : attention_copies(sources, rank, number("local_block_len"),
                                                   number("remote_block_len"),
                                                   in["k_and_v_in_one_block"].get_bool() ? 2 : 1);
    for (std::uint64_t region = 0; region < static_cast<std::uint64_t>(number("num_regions"));
         ++region)
      for (const RegionCopy& copy :
           region_copies(blocks, side("local_block_len", "local_ratio", region),
                         side("remote_block_len", "remote_ratio", region), parts))
        for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(copy.bytes); ++i)
          if (!bytes[rank].emplace(copy.local + i, copy.remote + i).second)
            throw std::runtime_error("a byte is written twice");
  }

  std::map<int, Bytes> all() const {
    std::map<int, Bytes> bytes;
    const auto kinds = kinds_of(in);
    for (std::size_t group = 0; group < kinds.size(); ++group) {
      const bool is_state = kinds[group] == "mamba";
      const auto local = kernel_blocks(numbers_of(in["local_block_ids"].at(group)),
                                       number_of(in, "local_ratio"), is_state);
      const auto remote = kernel_blocks(numbers_of(in["remote_block_ids"].at(group)),
                                        number_of(in, "remote_ratio"), is_state);
      const BlockAlignment alignment{
          .tail = !has_states(kinds),
          .local_first = 0,
          .largest_ratio = std::max(number("local_ratio"), number("remote_ratio"))};
      const auto paired =
          is_state ? pair_states(local, remote) : pair_blocks(local, remote, alignment);
      for (const int rank : is_state ? sources.states : sources.attention)
        add(bytes, *paired, is_state, rank);
    }
    return bytes;
  }
};

}  // namespace

TEST_CASE("heads and states are read from the ranks that vLLM reads", "[nixl][conformance]") {
  require_conformance("nixl_tp_mapping/1", 69, [](Element one) {
    const RankPair pair = ranks_of(one);
    const Element expected = one["expected"];
    const auto ratio = rank_ratio(pair);
    if (has(expected, "error")) {
      expect_equal("ratio", 0, ratio.value_or(0));
      return;
    }
    const SourceRanks sources = source_ranks(pair);
    expect_equal("tp_ratio", number_of(expected, "tp_ratio"), sources.ratio);
    expect_equal("handshake_ranks", text_of(numbers_of(expected["handshake_ranks"])),
                 text_of(sources.asked));
    const auto kinds = kinds_of(one);
    std::set<int> all;
    for (std::size_t group = 0; group < kinds.size(); ++group) {
      const auto& ranks = kinds[group] == "mamba" ? sources.states : sources.attention;
      all.insert(ranks.begin(), ranks.end());
      expect_equal("source_ranks",
                   text_of(numbers_of(expected["source_ranks_per_group"].at(group))),
                   text_of(ranks));
    }
    expect_equal("all_source_ranks", text_of(numbers_of(expected["all_source_ranks"])),
                 text_of(all));
    std::string slots;
    for (const int rank : all) slots += text_of(std::vector{rank, sources.attention_slot(rank)});
    std::string expected_slots;
    for (const auto slot : expected["rank_to_attention_slot"].get_array())
      expected_slots += text_of(numbers_of(slot));
    expect_equal("rank_to_attention_slot", expected_slots, slots);
    expect_equal("rank_offset_factor", number_of(expected, "rank_offset_factor"),
                 sources.head_offset);
  });
}

TEST_CASE("the parts of a convolution's state are vLLM's", "[nixl][conformance]") {
  require_conformance("nixl_conv_split/1", 12, [](Element one) {
    const Element expected = one["expected"];
    if (has(one, "ssm_sizes")) {
      const auto sizes = numbers_of(one["ssm_sizes"]);
      expect_equal("ratio", number_of(expected, "ratio"),
                   blocks_of_state({{sizes[0]}, sizes[1]}, number_of(one, "block_len")));
      return;
    }
    const auto shape = numbers_of(one["temporal_shape"]);
    const bool is_mamba = std::string_view(one["state_kind"]) == "mamba2";
    const auto channels =
        projection_channels(is_mamba ? StateKind::mamba2 : StateKind::delta_net,
                            number_of(one, "conv_dim_local"), shape[0] * shape[1]);
    if (has(expected, "error")) {
      expect_equal("error", 0, static_cast<std::int64_t>(channels.size()));
      return;
    }
    expect_equal("projection_dims", text_of(numbers_of(expected["projection_dims"])),
                 text_of(channels));
    const StateBytes state =
        state_of(channels, number_of(one, "conv_rows") * number_of(one, "conv_dtype_bytes"),
                 shape[0] * shape[1] * shape[2] * number_of(one, "ssm_dtype_bytes"));
    expect_equal("conv_bytes", number_of(expected, "conv_bytes"), state.conv());
    expect_equal("ssm_bytes", number_of(expected, "ssm_bytes"), state.rest);
    check_slices(expected["local_offsets"], state_copies({.states = {0}}, 0, state),
                 &BlockCopy::local);
    for (const auto offset : expected["remote_offsets"].get_array()) {
      const SourceRanks sources{.ratio = number_of(offset, "tp_ratio"),
                                .states = {0},
                                .state_offset = number_of(offset, "rank_offset")};
      check_slices(offset["slices"], state_copies(sources, 0, state), &BlockCopy::remote);
    }
  });
}

TEST_CASE("every byte comes from where vLLM reads it", "[nixl][conformance]") {
  require_conformance("nixl_copy_plan/1", 73, [](Element one) {
    std::map<int, Plan::Bytes> expected;
    for (const auto read : one["expected"]["reads"].get_array()) {
      for (const auto list : read["copies"].get_array()) {
        const auto copy = numbers_of(list);
        for (std::int64_t i = 0; i < copy[2]; ++i)
          expected[number_of(read, "remote_rank")][static_cast<std::uint64_t>(copy[1] + i)] =
              static_cast<std::uint64_t>(copy[0] + i);
      }
    }
    if (Plan{one["input"]}.all() != expected) throw std::runtime_error("other bytes");
  });
}

TEST_CASE("a peer fits where it fits vLLM", "[nixl][conformance]") {
  require_conformance("nixl_handshake/1", 90, [](Element one) {
    const Element in = one["input"], expected = one["expected"];
    const auto lens = [&](const char* name) {
      std::vector<std::uint64_t> values;
      for (const std::int64_t value : numbers_of(in[name]))
        values.push_back(static_cast<std::uint64_t>(value));
      return values;
    };
    const auto local = lens("local_block_lens"), remote = lens("remote_block_lens");
    FitInput input{.ranks = ranks_of(in),
                   .local = {number_of(in, "local_block_size"), number_of(in, "local_ratio"), local,
                             in["local_layout"].get_string()},
                   .remote = {number_of(in, "remote_block_size"), number_of(in, "remote_ratio"),
                              remote, in["remote_layout"].get_string()},
                   .rules = {.has_groups = in["hma_required"].get_bool(),
                             .has_states = has_states(kinds_of(in)),
                             .may_permute = in["enable_permute_local_kv"].get_bool(),
                             .caches_prefixes = in["enable_prefix_caching"].get_bool()},
                   .num_blocks = static_cast<std::uint64_t>(number_of(in, "remote_num_blocks"))};
    if (has(in, "known_remote_num_blocks"))
      input.known_blocks = static_cast<std::uint64_t>(number_of(in, "known_remote_num_blocks"));
    const auto problem = peer_misfit(input);
    const std::string code =
        has(expected, "code") ? std::string(std::string_view(expected["code"])) : "";
    expect_equal("code", code, problem ? std::string(name_of(problem->misfit)) : "");
    if (!problem)
      expect_equal("permute_local_kv", bool(expected["permute_local_kv"]),
                   needs_permutation(input));
  });
}

}  // namespace quire::test
