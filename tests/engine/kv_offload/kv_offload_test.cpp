#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <vector>

#include "base/error.h"
#include "cpu/cpu_backend.h"
#include "engine/kv_offload/kv_offload.h"

namespace quire {
namespace {

constexpr int kTokens = 4, kBlocks = 32;
constexpr std::size_t kPage = 4096, kSlot = 2 * kPage;

// Two groups of two layers, which share memory as a pool's do.
class OffloadTest {
 public:
  OffloadTest()
      : folder(std::filesystem::temp_directory_path() /
               ("quire-behind-" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(folder);
    std::filesystem::create_directory(folder);
    for (int tensor = 0; tensor < 2; ++tensor)
      tensors_.push_back(device_->allocate(kBlocks * kPage));
    for (int layer = 0; layer < 4; ++layer) {
      LayerCache& cache = layers_.emplace_back();
      cache.base = tensors_[static_cast<std::size_t>(layer % 2)].data();
      cache.page_bytes = kPage;
      cache.group = layer / 2;
    }
  }
  ~OffloadTest() { std::filesystem::remove_all(folder); }

  OffloadSetup setup(int num_slots, bool disk = false) {
    OffloadSetup made;
    made.layers = layers_;
    made.memory = device_->allocate(static_cast<std::size_t>(num_slots) * kSlot);
    memory_ = static_cast<std::byte*>(made.memory.data());
    made.slot_bytes = kSlot;
    made.most_tokens = kTokens;
    made.config.host_bytes = num_slots * static_cast<std::int64_t>(kSlot);
    if (disk) made.config.path = folder.string();
    made.fingerprint = "this";
    return made;
  }
  KvOffload behind(OffloadSetup made) { return KvOffload(*device_, std::move(made)); }

  std::byte* page(int tensor, BlockId block) {
    return static_cast<std::byte*>(tensors_[static_cast<std::size_t>(tensor)].data()) +
           static_cast<std::size_t>(block) * kPage;
  }
  // What block `name` holds, wherever it is.
  void fill(BlockId block, int name) {
    for (int tensor = 0; tensor < 2; ++tensor) std::memset(page(tensor, block), name + tensor, kPage);
  }
  bool holds(BlockId block, int name) {
    for (int tensor = 0; tensor < 2; ++tensor)
      for (std::size_t i = 0; i < kPage; ++i)
        if (page(tensor, block)[i] != static_cast<std::byte>(name + tensor)) return false;
    return true;
  }
  BlockContent content(int name) {
    tokens_.assign(kTokens, name);
    return {.group = name % 2, .hash = {static_cast<std::uint64_t>(name), 1}, .tokens = tokens_};
  }
  void keep(KvOffload& behind, int name) {
    fill(1, name);
    behind.keep(1, content(name));
    fill(1, 0);
  }
  bool comes_back(KvOffload& behind, int name) {
    fill(2, 0);
    return behind.restore(content(name), 2) && holds(2, name);
  }
  void damage_file() {
    std::fstream file(folder / "engine-0.kv", std::ios::in | std::ios::out | std::ios::binary);
    const auto size = static_cast<std::int64_t>(std::filesystem::file_size(folder / "engine-0.kv"));
    for (std::int64_t at = 4096 + 1000; at < size; at += 4096) file.seekp(at).put('?');
  }

  const std::filesystem::path folder;

 protected:
  const std::unique_ptr<Device> device_ = make_cpu_device();
  std::vector<Buffer> tensors_;
  std::vector<LayerCache> layers_;
  std::vector<TokenId> tokens_;
  std::byte* memory_ = nullptr;
};

TEST_CASE_METHOD(OffloadTest, "what the pool gives up comes back, the newest of it",
                 "[kv_offload]") {
  KvOffload tier = behind(setup(3));
  for (int name = 10; name < 13; ++name) keep(tier, name);
  CHECK(comes_back(tier, 10));  // used: now 11 is the oldest
  keep(tier, 13);
  CHECK_FALSE(tier.holds(content(11)));
  CHECK_FALSE(comes_back(tier, 11));
  for (const int name : {10, 12, 13}) CHECK(comes_back(tier, name));
  keep(tier, 13);  // it is there already
  CHECK(tier.stats().saved_bytes == 4 * std::int64_t{kSlot});
  CHECK(tier.stats().restored_bytes == 4 * std::int64_t{kSlot});
  CHECK(tier.stats().host_bytes == 3 * std::int64_t{kSlot});
  tier.clear();
  CHECK_FALSE(tier.holds(content(10)));
}

TEST_CASE_METHOD(OffloadTest, "a block that changed in memory is no hit", "[kv_offload]") {
  KvOffload tier = behind(setup(1));
  keep(tier, 20);
  memory_[5000] ^= std::byte{1};
  CHECK(tier.holds(content(20)));
  CHECK_FALSE(comes_back(tier, 20));
  CHECK_FALSE(tier.holds(content(20)));
  CHECK(tier.stats().damaged == 1);
  keep(tier, 20);
  CHECK(comes_back(tier, 20));
}

TEST_CASE_METHOD(OffloadTest, "what memory has no room for goes to the disk and back",
                 "[kv_offload]") {
  KvOffload tier = behind(setup(4, true));
  for (int name = 10; name < 20; ++name) {
    keep(tier, name);
    tier.finish_writing();
  }
  CHECK(tier.stats().dropped == 0);
  for (int name = 10; name < 20; ++name) {
    CAPTURE(name);
    REQUIRE(tier.holds(content(name)));
    CHECK(comes_back(tier, name));
    tier.finish_writing();
  }
  CHECK(tier.stats().damaged == 0);
  CHECK(tier.stats().read_bytes >= 6 * std::int64_t{kSlot});
}

TEST_CASE_METHOD(OffloadTest, "the next start finds what is on disk", "[kv_offload]") {
  BlockHasher::Key key;
  std::vector<int> on_disk;
  {
    KvOffload tier = behind(setup(2, true));
    key = *tier.hash_key();
    for (int name = 10; name < 18; ++name) {
      keep(tier, name);
      tier.finish_writing();
    }
  }
  SECTION("as it was") {
    KvOffload tier = behind(setup(2, true));
    CHECK(tier.hash_key()->low == key.low);
    int found = 0;
    for (int name = 10; name < 18; ++name) found += comes_back(tier, name) ? 1 : 0;
    CHECK(found >= 6);
    CHECK(tier.stats().damaged == 0);
  }
  SECTION("damaged: each block is a miss, once") {
    damage_file();
    KvOffload tier = behind(setup(2, true));
    for (int name = 10; name < 18; ++name) {
      CHECK_FALSE(comes_back(tier, name));
      CHECK_FALSE(tier.holds(content(name)));
    }
    CHECK(tier.stats().damaged >= 6);
  }
  SECTION("for another model: not") {
    OffloadSetup other = setup(2, true);
    other.fingerprint = "that";
    KvOffload tier = behind(std::move(other));
    for (int name = 10; name < 18; ++name) CHECK_FALSE(tier.holds(content(name)));
  }
}

// Writes beyond the limit fail, as those to a full disk do.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit less{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &less);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST_CASE_METHOD(OffloadTest, "of a full disk what is there can be read, and nothing else is lost",
                 "[kv_offload]") {
  const FullDisk full(4096 + 3 * (kSlot + 4096) + 100);
  KvOffload tier = behind(setup(2, true));
  for (int name = 10; name < 20; ++name) {
    keep(tier, name);
    tier.finish_writing();
  }
  CHECK(tier.stats().written_bytes == 3 * std::int64_t{kSlot});
  CHECK(tier.stats().dropped > 0);
  int found = 0;
  for (int name = 10; name < 20; ++name) {
    if (!tier.holds(content(name))) continue;
    ++found;
    CHECK(comes_back(tier, name));
  }
  CHECK(found >= 3);
  CHECK(tier.stats().damaged == 0);
}

TEST_CASE_METHOD(OffloadTest, "a disk that is full at the start is named", "[kv_offload]") {
  const FullDisk full(100);
  CHECK_NOTHROW(behind(setup(2, true)));  // the header fits
  std::filesystem::remove(folder / "engine-0.kv");
  const FullDisk nothing(10);
  CHECK_THROWS_WITH(behind(setup(2, true)), Catch::Contains("engine-0.kv cannot be written"));
}

TEST_CASE_METHOD(OffloadTest, "random traffic never brings back what was not kept",
                 "[kv_offload]") {
  KvOffload tier = behind(setup(6, true));
  std::mt19937 random(7);
  int hits = 0;
  for (int step = 0; step < 3000; ++step) {
    const int name = 10 + static_cast<int>(random() % 40);
    if (random() % 3 == 0) {
      keep(tier, name);
    } else if (tier.holds(content(name))) {
      fill(2, 0);
      if (!tier.restore(content(name), 2)) continue;
      ++hits;
      REQUIRE(holds(2, name));
    }
    if (random() % 500 == 0) tier.clear();
  }
  CHECK(hits > 300);
  CHECK(tier.stats().damaged == 0);
}

}  // namespace
}  // namespace quire
