// What was fetched gets into its blocks, by whatever thread; and what is cancelled is let go.

#include "engine/kv_transfer/pages/filler.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <cstring>
#include <memory>

#include "cpu/cpu_backend.h"

namespace quire {
namespace {

constexpr int kBlocks = 64, kBlockSize = 16;

KvSpec attention() {
  KvSpec spec;
  spec.num_kv_heads = 8;
  spec.head_size = 128;
  spec.dtype = DType::bf16;
  spec.block_size = kBlockSize;
  return spec;
}

KvSpec state() {
  KvSpec spec;
  spec.kind = KvKind::mamba;
  spec.states = {{{4, 64}, DType::f32}};
  spec.block_size = kBlockSize;
  return spec;
}

// A cache, and prefills that lie in a buffer.
class Cache {
 public:
  explicit Cache(const std::vector<KvSpec>& specs)
      : staging_(device->allocate_zeroed(std::size_t{8} << 20)) {
    std::vector<LayerCache> layers;
    int group = 0;
    for (const KvSpec& spec : specs) {
      LayerCache layer{.num_blocks = kBlocks,
                       .page_bytes = unpadded_page_bytes(spec),
                       .block_size = kBlockSize,
                       .kernel_block_size = spec.kind == KvKind::mamba ? 1 : kBlockSize,
                       .spec = spec,
                       .group = group++};
      memory_.push_back(device->allocate_zeroed(layer.page_bytes * kBlocks));
      layer.base = memory_.back().data();
      layers.push_back(layer);
      geometry_.layers.push_back(layer_geometry({.layer = "layer", .spec = spec}, kBlockSize));
    }
    pages = std::make_unique<CachePages>(*device, std::move(layers));
  }

  KvFetched fetched(int request, int num_tokens) {
    KvFetched one;
    one.request = RequestId{static_cast<std::uint64_t>(request)};
    one.content = kv_content(geometry_, num_tokens);
    one.range = staging_.take(one.content.bytes);
    REQUIRE(one.range != nullptr);
    std::memset(one.range->bytes().data(), request, one.range->bytes().size());
    return one;
  }
  // Of so many tokens from this block on, in each group.
  BlockTable blocks(int first, int num_tokens) const {
    BlockTable table(geometry_.layers.size());
    for (auto& group : table)
      for (int i = 0; i * kBlockSize < num_tokens; ++i) group.push_back(first + i);
    return table;
  }
  // Is each byte of the content, as it lies in these blocks, the request's?
  bool holds(int request, int num_tokens, const BlockTable& blocks) {
    const KvContent content = kv_content(geometry_, num_tokens);
    std::vector<std::byte> bytes(static_cast<std::size_t>(content.bytes));
    REQUIRE(pages->read(content, blocks, bytes));
    return std::ranges::all_of(bytes, [&](std::byte one) { return one == std::byte(request); });
  }
  std::int64_t used() const { return staging_.used(); }

  const std::unique_ptr<Device> device = make_cpu_device();
  std::unique_ptr<CachePages> pages;

 private:
  KvGeometry geometry_{.model_fingerprint = "test", .layers = {}};
  std::vector<Buffer> memory_;
  StagingBuffer staging_;
};

// What wakes whoever waits for the filler.
class Bell {
 public:
  void ring() {
    const std::lock_guard lock(mutex_);
    rung_ = true;
    changed_.notify_one();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return rung_; });
    rung_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool rung_ = false;
};

constexpr auto kAtOnce = std::chrono::nanoseconds::max();

}  // namespace

TEST_CASE("beside the steps what was fetched gets into its blocks, and its room back", "[kv]") {
  Cache cache({attention(), attention()});
  Bell bell;
  PageFiller filler(*cache.pages, true, [&] { bell.ring(); });
  const int num_tokens = 250;
  for (int request = 1; request <= 3; ++request)
    filler.add(cache.fetched(request, num_tokens),
               cache.blocks(1 + 20 * (request - 1), num_tokens));
  CHECK_FALSE(filler.needs_work());
  SECTION("by itself") { filler.work(std::chrono::nanoseconds(0)); }
  SECTION("with the help of whoever has nothing else to do") { filler.work(kAtOnce); }
  std::vector<PageFiller::Filled> filled = filler.take();
  while (filled.size() < 3) {
    bell.wait();
    for (PageFiller::Filled& one : filler.take()) filled.push_back(std::move(one));
  }
  for (int request = 1; request <= 3; ++request)
    CHECK(cache.holds(request, num_tokens, cache.blocks(1 + 20 * (request - 1), num_tokens)));
  for (const PageFiller::Filled& one : filled) CHECK(one.is_whole);
  filled.clear();
  CHECK(cache.used() == 0);
}

TEST_CASE("between steps a part is copied for each that has time", "[kv]") {
  Cache cache({attention()});
  PageFiller filler(*cache.pages, false, [] { FAIL("nobody is woken"); });
  const int num_tokens = 900;  // more than three parts
  filler.add(cache.fetched(7, num_tokens), cache.blocks(1, num_tokens));
  filler.work(std::chrono::nanoseconds(0));
  filler.work(std::chrono::nanoseconds(1));
  CHECK(filler.take().empty());
  CHECK(filler.needs_work());
  filler.work(kAtOnce);
  CHECK_FALSE(filler.needs_work());
  const auto filled = filler.take();
  REQUIRE(filled.size() == 1);
  CHECK(filled.front().is_whole);
  CHECK(cache.holds(7, num_tokens, cache.blocks(1, num_tokens)));
}

TEST_CASE("what is cancelled ends at once or with the part under way, and is not whole", "[kv]") {
  Cache cache({attention()});
  Bell bell;
  const bool beside = GENERATE(false, true);
  PageFiller filler(*cache.pages, beside, [&] { bell.ring(); });
  const int num_tokens = 900;
  filler.add(cache.fetched(1, num_tokens), cache.blocks(1, num_tokens));
  filler.cancel(RequestId{1});
  filler.cancel(RequestId{2});  // which is not there
  std::vector<PageFiller::Filled> filled = filler.take();
  if (filled.empty()) {
    bell.wait();
    filled = filler.take();
  }
  REQUIRE(filled.size() == 1);
  if (!beside) CHECK_FALSE(filled.front().is_whole);
}

TEST_CASE("a state without a block is reported, and nothing fetched ends as well", "[kv]") {
  Cache cache({attention(), state()});
  PageFiller filler(*cache.pages, false, [] {});
  BlockTable blocks = cache.blocks(1, 100);
  blocks[1].assign(blocks[1].size(), 0);
  filler.add(cache.fetched(1, 100), blocks);
  filler.add({.request = RequestId{2}}, {{}, {}});
  filler.work(kAtOnce);
  const auto filled = filler.take();
  REQUIRE(filled.size() == 2);
  for (const PageFiller::Filled& one : filled)
    CHECK(one.is_whole == (one.fetched.request == RequestId{2}));
}

TEST_CASE("a filler may go with work left", "[kv]") {
  Cache cache({attention()});
  {
    PageFiller filler(*cache.pages, true, [] {});
    filler.add(cache.fetched(1, 900), cache.blocks(1, 900));
  }
  CHECK(cache.used() == 0);
}

}  // namespace quire
