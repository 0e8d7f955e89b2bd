// Prefills over NIXL's own library, without a model: QUIRE_NIXL_LIBRARY names libnixl_capi.so.

#include <fmt/format.h>

#include <cstring>
#include <ctime>

#include "tests/engine/kv_transfer/nixl/ends.h"
#include "tests/engine/kv_transfer/nixl/stranger.h"

namespace quire::test {
namespace {

// The rows of `content` out of those of all tokens.
std::vector<std::byte> rows_of(const KvGeometry& geometry, const KvContent& content,
                               const std::vector<std::byte>& all) {
  const KvContent whole = kv_content(geometry, content.num_tokens);
  std::vector<std::byte> rows(static_cast<std::size_t>(content.bytes));
  for (const KvPiece& piece : kv_pieces(whole, content))
    std::copy_n(all.begin() + piece.source, piece.bytes, rows.begin() + piece.target);
  return rows;
}

bool holds(const KvFetched& fetched, const std::vector<std::byte>& expected) {
  INFO(fetched.detail);
  REQUIRE_FALSE(fetched.loss);
  const auto bytes = fetched.range->bytes();
  return static_cast<std::size_t>(fetched.content.bytes) == expected.size() &&
         std::memcmp(bytes.data(), expected.data(), expected.size()) == 0;
}

void check_freed(const NixlEnds& ends) {
  for (int i = 0; i < 5000 && ends.exports.used_bytes() > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(ends.exports.used_bytes() == 0);
}

}  // namespace

TEST_CASE("without the library a plane says what is missing", "[nixl]") {
  CHECK_THROWS_WITH(NixlLibrary("/nowhere/libnixl_capi.so"),
                    Catch::Contains("NixlConfig::library") && Catch::Contains("nixl-cu12"));
}

TEST_CASE("what one plane keeps another reads, byte for byte", "[nixl]") {
  if (!has_nixl()) return;
  NixlEnds ends;
  for (const int length : {1, 15, 16, 17, 100, 250}) {
    INFO(length << " tokens");
    const auto bytes = ends.keep(fmt::format("key-{}", length), length);
    const KvFetched fetched = ends.fetch(length);
    CHECK(holds(fetched, bytes));
  }
  check_freed(ends);
  CHECK(ends.reader->received().requests == 6);
}

TEST_CASE("only tokens that are missing are read over NIXL", "[nixl]") {
  if (!has_nixl()) return;
  NixlEnds ends;
  for (const int from : {1, 16, 40, 99}) {
    const auto bytes = ends.keep(fmt::format("key-{}", from), 100);
    const KvFetched fetched = ends.fetch(100, from);
    CHECK(holds(fetched, rows_of(ends.geometry, fetched.content, bytes)));
  }
  check_freed(ends);
}

TEST_CASE("windows keep their last blocks over NIXL", "[nixl]") {
  if (!has_nixl()) return;
  NixlEnds ends(nixl_geometry(40));
  for (const int length : {10, 40, 64, 100, 250}) {
    INFO(length << " tokens");
    const auto bytes = ends.keep(fmt::format("key-{}", length), length);
    CHECK(ends.source.blocks.size() == 2);
    const KvFetched fetched = ends.fetch(length);
    CHECK(holds(fetched, rows_of(ends.geometry, fetched.content, bytes)));
  }
  check_freed(ends);
}

TEST_CASE("chunks keep their blocks over NIXL, and name those before them", "[nixl]") {
  if (!has_nixl()) return;
  NixlEnds ends(nixl_geometry(0, 48));
  for (const int length : {10, 48, 49, 100, 250}) {
    INFO(length << " tokens");
    const auto bytes = ends.keep(fmt::format("key-{}", length), length);
    const auto& chunked = ends.source.blocks.at(1);
    CHECK(chunked.size() == ends.source.blocks[0].size());
    CHECK(std::ranges::count(chunked, 0) == (length - 1) / 48 * 3);
    const KvFetched fetched = ends.fetch(length);
    CHECK(holds(fetched, rows_of(ends.geometry, fetched.content, bytes)));
  }
  check_freed(ends);
  ends.keep("key", 100);
  ends.source.blocks[1].back() = 0;  // vLLM's block of nothing
  CHECK(ends.fetch(100).loss == KvLossReason::refused);
}

TEST_CASE("a block that was used again is a loss over NIXL, not another's rows", "[nixl]") {
  if (!has_nixl()) return;
  NixlEnds ends;
  ends.keep("first", 100);
  const KvSource first = ends.source;
  ends.exports.was_read("first", 1);
  std::vector<KvSource> kept;
  for (int i = 0; ends.source.blocks[0][0] != first.blocks[0][0] || i == 0; ++i) {
    const std::string key = fmt::format("other-{}", i);
    ends.keep(key, 100);
    if (ends.source.blocks[0][0] != first.blocks[0][0]) ends.exports.was_read(key, 1);
    REQUIRE(i < 1000);
  }
  ends.source = first;
  const KvFetched fetched = ends.fetch(100);
  CHECK(fetched.loss == KvLossReason::corrupt);
}

TEST_CASE("damaged bytes are a loss over NIXL", "[nixl]") {
  if (!has_nixl()) return;
  NixlEnds ends;
  ends.keep("key", 100);
  const NixlExports::Region& region = ends.exports.regions()[2];
  const auto block = static_cast<std::uint64_t>(ends.source.blocks[0][3]);
  reinterpret_cast<unsigned char*>(region.address + block * region.block_bytes)[77] ^= 1;
  CHECK(ends.fetch(100).loss == KvLossReason::corrupt);
}

TEST_CASE("another prompt's blocks are a loss over NIXL, whatever the params leave out", "[nixl]") {
  if (!has_nixl()) return;
  NixlEnds ends;
  ends.keep("key", 100);
  REQUIRE_FALSE(ends.source.prompt_hash);
  ++ends.prompt_hash;
  CHECK(ends.fetch(100).loss == KvLossReason::corrupt);
  CHECK(ends.fetch(100, 50).loss == KvLossReason::corrupt);
}

TEST_CASE("blocks in another order are a loss over NIXL", "[nixl]") {
  if (!has_nixl()) return;
  for (const int window : {0, 40}) {
    NixlEnds ends(nixl_geometry(window));
    const auto bytes = ends.keep("key", 96);
    const KvSource good = ends.source;
    for (std::size_t group = 0; group < good.blocks.size(); ++group) {
      ends.source = good;
      std::ranges::reverse(ends.source.blocks[group]);
      CHECK(ends.fetch(96).loss == KvLossReason::corrupt);
      ends.source = good;
      ends.source.blocks[group][1] = good.blocks[group][2];
      CHECK(ends.fetch(96).loss == KvLossReason::corrupt);
    }
    if (good.blocks.size() == 2) {
      ends.source = good;
      std::swap_ranges(ends.source.blocks[1].begin(), ends.source.blocks[1].end(),
                       ends.source.blocks[0].end() - std::ssize(good.blocks[1]));
      CHECK(ends.fetch(96).loss == KvLossReason::corrupt);
    }
    ends.source = good;
    const KvFetched fetched = ends.fetch(96);
    CHECK(holds(fetched, rows_of(ends.geometry, fetched.content, bytes)));
  }
}

TEST_CASE("a list that is short is not taken for that of a window over NIXL", "[nixl]") {
  if (!has_nixl()) return;
  NixlEnds ends;
  ends.keep("key", 100);
  ends.source.blocks[0].pop_back();
  CHECK(ends.fetch(100, 96).loss == KvLossReason::refused);
}

TEST_CASE("params that do not fit are a loss over NIXL", "[nixl]") {
  if (!has_nixl()) return;
  NixlEnds ends;
  ends.keep("key", 100);
  const KvSource good = ends.source;
  const auto loss_of = [&](auto change) {
    ends.source = good;
    change(ends.source);
    return ends.fetch(100).loss;
  };
  CHECK(loss_of([](KvSource& s) { s.engine = "x"; }) == KvLossReason::expired);
  CHECK(loss_of([](KvSource& s) { s.blocks[0].pop_back(); }) == KvLossReason::refused);
  CHECK(loss_of([](KvSource& s) { s.blocks[0][1] = 1 << 30; }) == KvLossReason::refused);
  CHECK(loss_of([](KvSource& s) { s.blocks.clear(); }) == KvLossReason::refused);
  CHECK(loss_of([](KvSource& s) { s.tensor_ranks = 2; }) == KvLossReason::incompatible);
  CHECK(loss_of([](KvSource& s) { s.tensor_ranks = 3; }) == KvLossReason::incompatible);
  CHECK(loss_of([](KvSource& s) { s.prompt_hash = 7; }) == KvLossReason::prompt);
  CHECK(loss_of([](KvSource& s) { s.prefill.key = "x"; }) == KvLossReason::corrupt);
  CHECK(loss_of([](KvSource& s) { s.address.port = 1; }) == KvLossReason::peer_lost);
  ends.source = good;
  CHECK(ends.arriving.used() == 0);
}

TEST_CASE("a number of ranks that a request only says is held against what the peer shows",
          "[nixl]") {
  if (!has_nixl()) return;
  NixlEnds ends;
  const NixlSelf self = nixl_thread_options(ends.geometry).self;
  struct Case {
    const char* name;
    NixlStranger::Options peer;
    int said;
    KvLossReason loss;
    int asked;  // questions that it costs, each time: to watch, to fetch and to release
    const char* says;
  };
  const auto c = GENERATE(values<Case>({
      {"a Quire server is one", {.is_quire = true}, 2, KvLossReason::incompatible, 1, "tp_size"},
      {"blocks of all heads", {}, 2, KvLossReason::incompatible, 1, "block_lens"},
      {"more than divide the heads", {}, 3, KvLossReason::incompatible, 0, "tp_size"},
      {"more than answer",
       {.num_ranks = 2},
       1024,
       KvLossReason::peer_lost,
       3,
       "tp_size is said to be 1024"},
      {"two that are one agent", {.num_ranks = 2}, 2, KvLossReason::incompatible, 2, "one agent"},
  }));
  INFO(c.name);
  NixlStranger stranger(self, c.peer);
  ends.source = stranger.source("r");
  ends.source.pushed = false;
  ends.source.blocks = {{0}};
  ends.source.tensor_ranks = c.said;
  const KvFetched fetched = ends.fetch(10);
  INFO(fetched.detail);
  CHECK(fetched.loss == c.loss);
  CHECK_THAT(fetched.detail, Catch::Contains(c.says));
  CHECK(stranger.num_asked() >= c.asked);
  CHECK(stranger.num_asked() <= 3 * c.asked);
}

TEST_CASE("what a peer has shown counts for requests that say another number of ranks", "[nixl]") {
  if (!has_nixl()) return;
  NixlEnds ends;
  NixlStranger stranger(nixl_thread_options(ends.geometry).self);
  ends.source = stranger.source("r");
  ends.source.pushed = false;
  ends.source.blocks = {{0}};
  ends.fetch(10);
  REQUIRE(stranger.num_asked() == 1);
  ends.source.tensor_ranks = 2;
  const KvFetched fetched = ends.fetch(10);
  CHECK(fetched.loss == KvLossReason::incompatible);
  CHECK_THAT(fetched.detail, Catch::Contains("tp_size is said to be 2") && Catch::Contains("1"));
  CHECK(stranger.num_asked() == 1);
}

TEST_CASE("a Quire server of another protocol is refused over NIXL by that name", "[nixl]") {
  if (!has_nixl()) return;
  NixlEnds ends;
  const NixlSelf self = nixl_thread_options(ends.geometry).self;
  for (const int protocol : {0, kKvProtocol + 1}) {
    NixlStranger stranger(self, {.is_quire = true, .protocol = protocol});
    ends.source = stranger.source("r");
    ends.source.pushed = false;
    ends.source.blocks = {{0}};
    const KvFetched fetched = ends.fetch(10);
    CHECK(fetched.loss == KvLossReason::incompatible);
    CHECK_THAT(fetched.detail, Catch::Contains(fmt::format("protocol is {} here and {} there",
                                                           kKvProtocol, protocol)));
  }
}

TEST_CASE("requests by names of engines that there are not cost a peer few questions", "[nixl]") {
  if (!has_nixl()) return;
  NixlEnds ends;
  NixlStranger stranger(nixl_thread_options(ends.geometry).self);
  KvSource source = stranger.source("r");
  source.pushed = false;
  source.blocks = {{0}};
  for (int i = 0; i < 60; ++i) {
    ends.source = source;
    ends.source.engine = fmt::format("made up {}", i);
    CHECK(ends.fetch(10).loss == KvLossReason::expired);
  }
  CHECK(stranger.num_asked() < 30);  // 16, and those that came again meanwhile
  ends.source = source;
  CHECK(ends.fetch(10).loss == KvLossReason::refused);  // block 0: it was asked, and is known now
}

TEST_CASE("a Quire server has registered its memory once", "[nixl]") {
  if (!has_nixl()) return;
  NixlEnds ends;
  const auto bytes = ends.keep("r", 100);
  ends.source.prefill.generation = 2;
  CHECK(ends.fetch(100).loss == KvLossReason::expired);
  ends.keep("r again", 100);
  ends.source.prefill.generation = kNixlRegistration;
  CHECK(holds(ends.fetch(100), bytes));
}

TEST_CASE("an owner that is gone is a loss over NIXL, and one that comes again is read", "[nixl]") {
  if (!has_nixl()) return;
  NixlEnds ends;
  const auto bytes = ends.keep("first", 100);
  CHECK(holds(ends.fetch(100), bytes));
  ends.keep("second", 100);
  ends.owner.reset();
  CHECK(ends.fetch(100).loss == KvLossReason::peer_lost);
  CHECK(ends.arriving.used() == 0);
  NixlPlaneOptions options = nixl_plane_options(ends.geometry);
  options.thread.engine = "owner again";
  options.thread.listen.emplace();
  options.thread.listen->host = "127.0.0.1";
  ends.owner = make_nixl_plane(std::move(options), &ends.exports, nullptr, [] {});
  const auto again = ends.keep("third", 64);
  ends.source.engine = "owner again";
  CHECK(holds(ends.fetch(64), again));
}

TEST_CASE("signs of life keep a prefill over NIXL, and its lease ends without", "[nixl]") {
  if (!has_nixl()) return;
  NixlEnds ends(nixl_geometry(), std::chrono::milliseconds(600));
  ends.keep("kept", 100);
  ends.reader->watch(RequestId{900}, ends.source);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  CHECK(ends.exports.used_bytes() > 0);
  CHECK(ends.exports.counts().expired == 0);
  ends.reader->release(RequestId{900});
  check_freed(ends);
  CHECK(ends.exports.counts().expired == 0);
  ends.keep("left alone", 100);
  check_freed(ends);
  CHECK(ends.exports.counts().expired == 1);
}

// The library's own threads are those of two agents; each looks every 10 ms.
TEST_CASE("planes that know each other and have nothing to do take little time", "[nixl]") {
  if (!has_nixl()) return;
  NixlEnds ends;
  const auto bytes = ends.keep("key", 100);
  CHECK(holds(ends.fetch(100), bytes));
  check_freed(ends);
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::seconds(2));
  const double used = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  INFO(used << " s of 2 s");
  CHECK(used < 0.1);
}

TEST_CASE("a fetch that is cancelled ends at once over NIXL", "[nixl]") {
  if (!has_nixl()) return;
  NixlEnds ends;
  ends.keep("key", 100);
  KvFetch wanted;
  wanted.request = RequestId{1};
  wanted.source = ends.source;
  wanted.num_tokens = 100;
  ends.reader->watch(wanted.request, ends.source);
  ends.reader->fetch(wanted);
  ends.reader->cancel(wanted.request);
  CHECK(ends.wait().request == wanted.request);
  ends.reader->release(wanted.request);
  check_freed(ends);
}

// A server may say that a region has fewer blocks than others.
TEST_CASE("a block beyond those of its region is refused", "[nixl]") {
  const NixlSelf self = nixl_thread_options(nixl_geometry()).self;
  NixlMetadata metadata;
  metadata.num_blocks = 10;
  metadata.block_size = 16;
  metadata.base_addresses = {1 << 20, 2 << 20, 3 << 20, 4 << 20};
  metadata.block_lens = metadata.block_strides = {8192, 8192, 8192, 8192};
  KvFetch fetch;
  fetch.num_tokens = 16;
  fetch.source.blocks = {{8}};
  const auto pull = [&] {
    NixlPull(self,
             std::make_shared<const std::vector<NixlPeerRank>>(
                 1, NixlPeerRank{metadata, NixlMemory::dram, ""}),
             fetch);
  };
  CHECK_NOTHROW(pull());
  metadata.region_blocks = {10, 10, 8, 10};
  CHECK_THROWS_AS(pull(), KvLost);
  fetch.source.blocks = {{7}};
  CHECK_NOTHROW(pull());
}

}  // namespace quire::test
