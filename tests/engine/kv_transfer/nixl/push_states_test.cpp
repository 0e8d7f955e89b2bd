// Prefills with recurrent states that are written into the blocks of others: what NixlPushWrite
// copies where is copied here by hand, so that none of it needs NIXL's library.

#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include "engine/kv_transfer/blocks/state_layout.h"
#include "engine/kv_transfer/nixl/pull.h"
#include "engine/kv_transfer/nixl/push_landing.h"
#include "engine/kv_transfer/nixl/push_write.h"
#include "tests/engine/kv_transfer/nixl/ends.h"

namespace quire::test {
namespace {

using Bytes = std::vector<std::byte>;

NixlSelf self_of(StateForm form, int window = 0) {
  return nixl_thread_options(hybrid_geometry(form, window)).self;
}

NixlMetadata metadata_of(const NixlSelf& self, const NixlSlots& slots, int num_ranks, bool quire) {
  NixlMetadata metadata;
  for (const NixlSlots::Region& region : slots.regions()) {
    metadata.base_addresses.push_back(reinterpret_cast<std::uint64_t>(region.bytes.data()));
    metadata.block_lens.push_back(static_cast<std::uint64_t>(region.block_bytes));
  }
  metadata.block_strides = metadata.block_lens;
  metadata.num_blocks = static_cast<std::uint64_t>(slots.num_kernel_blocks());
  metadata.block_size = slots.block_size();
  metadata.kernel_blocks_per_block = slots.ratio();
  const StateBytes bytes = state_bytes(*first_state(self.geometry));
  metadata.state_bytes = {static_cast<std::uint64_t>(bytes.conv() / num_ranks),
                          static_cast<std::uint64_t>(bytes.rest / num_ranks)};
  if (quire) metadata.quire = QuireExtension{"", slots.sums_address()};
  return metadata;
}

// What a rank of so many keeps.
NixlSelf rank_of(const NixlSelf& whole, int num_ranks) {
  NixlSelf self = whole;
  for (KvLayerGeometry& layer : self.geometry.layers) {
    layer.row_bytes /= num_ranks;
    layer.heads /= num_ranks;
    layer.state.heads /= num_ranks;
    layer.state.conv_channels /= num_ranks;
  }
  return self;
}

struct Kept {
  std::unique_ptr<Device> device = make_cpu_device();
  KeptPrefills all{device->allocate(1 << 20), std::chrono::seconds(30)};
  std::shared_ptr<KeptPrefill> prefill = std::make_shared<KeptPrefill>();

  Kept(const NixlSelf& self, int num_tokens, unsigned seed) {
    prefill->content = kv_content(self.geometry, num_tokens);
    prefill->range = all.make_room(prefill->content.bytes);
    REQUIRE(prefill->range != nullptr);
    std::mt19937 random(seed);
    for (std::byte& one : prefill->range->bytes()) one = static_cast<std::byte>(random());
  }
};

// Blocks of one rank, with something in them from before.
struct Rank {
  Bytes memory;
  NixlSlots slots;
  Rank(const NixlSelf& self, int block_size)
      : memory(2 << 20, std::byte{0xa5}), slots(memory, self.geometry, self.regions, block_size) {}
};

struct Written {
  Bytes bytes;  // of the scratch
  std::uint64_t remote = 0;
};

// All that is written, and what is said at the end.
std::vector<Written> written_of(NixlPushWrite& write, std::size_t scratch_bytes) {
  Bytes scratch(scratch_bytes);
  std::vector<Written> all;
  while (const auto part = write.next(scratch)) {
    REQUIRE((part->ends_rank || !part->copies.empty()));
    for (const NixlCopy& copy : part->copies) {
      const auto* from = static_cast<const std::byte*>(copy.local);
      all.push_back({Bytes(from, from + copy.bytes), copy.remote});
    }
  }
  return all;
}

void put(const Written& one) {
  std::memcpy(reinterpret_cast<void*>(one.remote), one.bytes.data(), one.bytes.size());
}

// Rows that are there on both sides, and every state.
void check_equal(const KvContent& content, const Bytes& bytes, const KeptPrefill& kept) {
  REQUIRE(content.strips.size() == kept.content.strips.size());
  for (std::size_t i = 0; i < content.strips.size(); ++i) {
    const KvStrip &ours = content.strips[i], &theirs = kept.content.strips[i];
    const int first = std::max(ours.first, theirs.first);
    const auto size = static_cast<std::size_t>((ours.first + ours.rows - first) * ours.row_bytes);
    INFO("layer " << ours.layer << ", plane " << ours.plane);
    CHECK(std::memcmp(bytes.data() + ours.offset + (first - ours.first) * ours.row_bytes,
                      kept.range->bytes().data() + theirs.offset +
                          (first - theirs.first) * theirs.row_bytes,
                      size) == 0);
  }
}

constexpr const char* kName = "chatcmpl-1-0123abcd";

struct Fetch {
  NixlSelf self;
  Rank rank;
  Kept kept;
  NixlPushLanding landing;
  NixlSlots::Blocks blocks;
  NixlPushWrite write;

  Fetch(const NixlSelf& s, int block_size, int num_tokens, int from)
      : self(s),
        rank(self, block_size),
        kept(self, num_tokens, 7),
        landing(self, block_size, num_tokens, from),
        blocks(*rank.slots.take(landing.counts())),
        write(self,
              std::make_shared<std::vector<NixlPeerRank>>(
                  1, NixlPeerRank{metadata_of(self, rank.slots, 1, true), NixlMemory::dram, "a"}),
              kept.prefill, registration(blocks)) {}

  static NixlPushRegistration registration(NixlSlots::Blocks blocks) {
    NixlPushRegistration registration;
    registration.request = kName;
    registration.blocks = std::move(blocks);
    return registration;
  }
  Bytes filled() const {
    landing.check_sums(rank.slots, blocks, kName);
    Bytes bytes(static_cast<std::size_t>(landing.content().bytes));
    landing.fill(rank.slots, blocks, bytes);
    return bytes;
  }
};

}  // namespace

TEST_CASE("states are written beside blocks of any size, and what is here is not",
          "[kv_transfer][push][states]") {
  for (const StateForm form : {StateForm::mamba2, StateForm::delta_net})
    for (const int window : {0, 24})
      for (const int block_size : {16, 32, 64, 256})
        for (const auto& [num_tokens, from] :
             {std::pair(1, 0), {16, 0}, {17, 16}, {100, 0}, {100, 48}, {100, 100}, {200, 160}}) {
          CAPTURE(static_cast<int>(form), window, block_size, num_tokens, from);
          Fetch fetch(self_of(form, window), block_size, num_tokens, from);
          CHECK(fetch.rank.slots.ratio() == std::max(1, 64 / block_size));
          const std::size_t least = static_cast<std::size_t>(
              NixlPushWrite::least_scratch_bytes(fetch.self.geometry, block_size));
          for (const Written& one : written_of(fetch.write, least)) put(one);
          check_equal(fetch.landing.content(), fetch.filled(), *fetch.kept.prefill);
        }
}

TEST_CASE(
    "a part of a prefill that is lost, late or damaged is a loss, one that comes twice is not",
    "[kv_transfer][push][states][faults]") {
  int num_states_struck = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const int num_tokens = 2 + static_cast<int>(random() % 150);
    const int from = random() % 3 == 0 ? static_cast<int>(random()) % num_tokens & ~15 : 0;
    const StateForm form = random() % 2 == 0 ? StateForm::mamba2 : StateForm::delta_net;
    Fetch fetch(self_of(form), 16, num_tokens, std::max(0, from));
    const auto least =
        static_cast<std::size_t>(NixlPushWrite::least_scratch_bytes(fetch.self.geometry, 16));
    std::vector<Written> all = written_of(fetch.write, least + random() % 4096);
    const std::size_t struck = random() % all.size();
    const auto fault = random() % 4;
    CAPTURE(seed, fault, struck, num_tokens, from);
    num_states_struck += all[struck].bytes.size() >= 5000 ? 1 : 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i == struck && fault == 0) continue;  // lost, or late
      if (i == struck && fault == 1) all[i].bytes[random() % all[i].bytes.size()] ^= std::byte{4};
      put(all[i]);
    }
    if (fault == 2) put(all[struck]);
    if (fault == 3) {  // a run of them, in another order
      for (std::size_t i = all.size(); i-- > 0;) put(all[i]);
    }
    if (fault < 2) {
      CHECK_THROWS_AS(fetch.filled(), KvLost);
      if (fault == 0) put(all[struck]);
      if (fault == 1) continue;
    }
    check_equal(fetch.landing.content(), fetch.filled(), *fetch.kept.prefill);
  }
  CHECK(num_states_struck > 20);
}

TEST_CASE("ranks of others get their part of a state, as they are read",
          "[kv_transfer][push][states]") {
  for (const StateForm form : {StateForm::mamba2, StateForm::delta_net})
    for (const int num_ranks : {1, 2})
      for (const int num_tokens : {1, 16, 100}) {
        CAPTURE(static_cast<int>(form), num_ranks, num_tokens);
        const NixlSelf self = self_of(form), own = rank_of(self, num_ranks);
        const Kept kept(self, num_tokens, 3);
        std::vector<std::unique_ptr<Rank>> ranks;
        auto peers = std::make_shared<std::vector<NixlPeerRank>>();
        for (int i = 0; i < num_ranks; ++i) {
          ranks.push_back(std::make_unique<Rank>(own, 16));
          peers->push_back(
              {metadata_of(self, ranks[static_cast<std::size_t>(i)]->slots, num_ranks, false),
               NixlMemory::dram, "a"});
        }
        const NixlPushLanding counts(own, 16, num_tokens, 0);
        const NixlSlots::Blocks blocks = *ranks.front()->slots.take(counts.counts());
        NixlPushWrite write(self, peers, kept.prefill, Fetch::registration(blocks));
        for (const Written& one : written_of(write, 1 << 16)) put(one);
        KvFetch fetch;
        fetch.source.blocks = blocks;
        fetch.num_tokens = num_tokens;
        const NixlPull pull(self, peers, fetch);
        Bytes landing(static_cast<std::size_t>(pull.landing_bytes()));
        for (int rank = 0; rank < num_ranks; ++rank)
          for (const NixlCopy& copy : pull.copies(rank, landing))
            std::memcpy(copy.local, reinterpret_cast<const void*>(copy.remote), copy.bytes);
        Bytes bytes(static_cast<std::size_t>(pull.content().bytes));
        pull.finish(landing, bytes);
        check_equal(pull.content(), bytes, *kept.prefill);
      }
}

// vLLM registers the blocks that it lacks, which are the last ones. (The lists are those of its
// KVCacheManager in 0.28.0, 0.31.0 and 0.33.0: as many as hold the tokens but the last, less the
// hits.)
TEST_CASE("of a prompt that vLLM has in part the last blocks are written, each with its tokens",
          "[kv_transfer][push][states]") {
  const NixlSelf self = self_of(StateForm::delta_net);
  for (const int num_tokens : {64, 65, 128, 192, 193, 199}) {
    const Kept kept(self, num_tokens, 5);
    const int total = (num_tokens + 63) / 64;
    std::vector<std::int64_t> all;
    for (int i = 0; i < total; ++i) all.push_back(4 + i);
    const auto written_to = [&](Rank& rank, int hits) {
      const auto peers = std::make_shared<std::vector<NixlPeerRank>>(
          1, NixlPeerRank{metadata_of(self, rank.slots, 1, false), NixlMemory::dram, "a"});
      const NixlSlots::Blocks blocks{{3}, {all.begin() + hits, all.end()}};
      NixlPushWrite write(self, peers, kept.prefill, Fetch::registration(blocks));
      for (const Written& one : written_of(write, 1 << 16)) put(one);
    };
    Rank whole(self, 16);
    written_to(whole, 0);
    for (int hits = 1; hits < total; ++hits) {
      CAPTURE(num_tokens, hits);
      Rank part(self, 16);
      written_to(part, hits);
      for (std::size_t region = 0; region < self.regions.num_regions; ++region) {
        const auto block_of = [&](const Rank& rank, std::int64_t id, int i) {
          const auto bytes = rank.slots.block(region, id * rank.slots.ratio() + i);
          return Bytes(bytes.begin(), bytes.end());
        };
        const Bytes untouched(block_of(part, 0, 0).size(), std::byte{0xa5});
        for (int block = 0; block < total; ++block)
          for (int i = 0; i < part.slots.ratio(); ++i)
            CHECK(block_of(part, all[static_cast<std::size_t>(block)], i) ==
                  (block < hits ? untouched
                                : block_of(whole, all[static_cast<std::size_t>(block)], i)));
      }
    }
  }
}

TEST_CASE("registrations without a block for a state, or with several, are refused",
          "[kv_transfer][push][states]") {
  const NixlSelf self = self_of(StateForm::delta_net);
  const Kept kept(self, 100, 3);
  const Rank rank(self, 16);
  const auto peers = std::make_shared<std::vector<NixlPeerRank>>(
      1, NixlPeerRank{metadata_of(self, rank.slots, 1, false), NixlMemory::dram, "a"});
  const auto is_refused = [&](NixlSlots::Blocks blocks) {
    try {
      const NixlPushWrite write(self, peers, kept.prefill, Fetch::registration(std::move(blocks)));
    } catch (const KvLost&) {
      return true;
    }
    return false;
  };
  REQUIRE(self.regions.num_groups == 2);
  CHECK_FALSE(is_refused({{3}, {4}}));
  CHECK_FALSE(is_refused({{3}, {4, 5}}));
  CHECK(is_refused({{}, {4}}));
  CHECK(is_refused({{0}, {4}}));
  CHECK(is_refused({{3, 5}, {4}}));
  CHECK(is_refused({{1 << 20}, {4}}));
  // Two of 64 tokens hold the prompt.
  CHECK(is_refused({{3}, {4, 5, 6}}));
  CHECK(is_refused({{3}}));
}

}  // namespace quire::test
