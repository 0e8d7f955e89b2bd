#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <random>
#include <vector>

#include "base/error.h"
#include "engine/kv_offload/disk_file.h"
#include "engine/kv_transfer/content/checksum.h"

namespace quire {
namespace {

using Bytes = std::vector<std::byte>;

class DiskFileTest {
 public:
  DiskFileTest()
      : folder(std::filesystem::temp_directory_path() /
               ("quire-offload-" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(folder);
    options.path = (folder / "engine-0.kv").string();
    options.bytes = 64 << 10;
    options.page_bytes = 5000;
    options.most_tokens = 16;
    options.fingerprint = "model and layout";
  }
  ~DiskFileTest() { std::filesystem::remove_all(folder); }

  static Bytes pages(unsigned seed) {
    std::mt19937 random(seed);
    Bytes bytes(5000);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    return bytes;
  }
  static DiskRecord record(int slot, std::uint64_t stamp) {
    DiskRecord one{.slot = slot, .stamp = stamp, .group = 1, .hash = {stamp, 5}};
    for (int i = 0; i < 16; ++i) one.tokens.push_back(i + static_cast<int>(stamp));
    one.sum = kv_checksum(pages(static_cast<unsigned>(stamp)));
    return one;
  }
  static void write(DiskFile& file, const DiskRecord& one) {
    REQUIRE(file.write(one, pages(static_cast<unsigned>(one.stamp))).has_value());
  }
  std::fstream raw() const {
    return std::fstream(options.path, std::ios::in | std::ios::out | std::ios::binary);
  }

  const std::filesystem::path folder;
  DiskFileOptions options;
};

TEST_CASE_METHOD(DiskFileTest, "blocks survive a restart, oldest first", "[kv_offload]") {
  BlockHasher::Key key;
  {
    DiskFile file(options);
    key = file.hash_key();
    REQUIRE(file.num_slots() == 7);
    CHECK(file.records().empty());
    write(file, record(0, 12));
    write(file, record(3, 11));
  }
  DiskFile again(options);
  CHECK(again.hash_key().low == key.low);
  CHECK(again.hash_key().high == key.high);
  const auto records = again.records();
  REQUIRE(records.size() == 2);
  CHECK(records[0].slot == 3);
  CHECK(records[1].tokens == record(0, 12).tokens);
  Bytes read(5000);
  CHECK(again.read(records[1], read));
  CHECK(read == pages(12));
  CHECK((std::filesystem::status(options.path).permissions() &
         (std::filesystem::perms::group_all | std::filesystem::perms::others_all)) ==
        std::filesystem::perms::none);
  again.clear();
  CHECK(again.records().empty());
  CHECK_FALSE(again.read(records[1], read));
}

TEST_CASE_METHOD(DiskFileTest, "what another model left is not taken over", "[kv_offload]") {
  {
    DiskFile file(options);
    write(file, record(0, 1));
  }
  DiskFileOptions other = options;
  SECTION("other weights") { other.fingerprint = "others"; }
  SECTION("blocks of another size") { other.page_bytes = 9000; }
  SECTION("a damaged header") {
    raw().seekp(20).put('x');
  }
  DiskFile again(other);
  CHECK(again.was_emptied());
  CHECK(again.records().empty());
}

TEST_CASE_METHOD(DiskFileTest, "a file that others could read becomes its owner's alone",
                 "[kv_offload]") {
  { const DiskFile file(options); }
  using std::filesystem::perms;
  std::filesystem::permissions(options.path, perms::all);
  const DiskFile file(options);
  CHECK(std::filesystem::status(options.path).permissions() ==
        (perms::owner_read | perms::owner_write));
}

TEST_CASE_METHOD(DiskFileTest, "what is not Quire's is left alone", "[kv_offload]") {
  std::filesystem::create_directories(folder);
  const auto file = folder / "notes";
  std::ofstream(file) << "not to be lost";
  const auto text = [&] {
    std::ifstream in(file);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  SECTION("a text of that name") {
    std::filesystem::rename(file, options.path);
    CHECK_THROWS_WITH(DiskFile(options), Catch::Contains("something that is not Quire's"));
    std::filesystem::rename(options.path, file);
  }
  SECTION("behind a link") {
    std::filesystem::create_symlink(file, options.path);
    CHECK_THROWS_WITH(DiskFile(options), Catch::Contains("symbolic link"));
  }
  SECTION("a pipe") {
    REQUIRE(::mkfifo(options.path.c_str(), 0600) == 0);
    CHECK_THROWS_WITH(DiskFile(options), Catch::Contains("no regular file"));
  }
  CHECK(text() == "not to be lost");
}

TEST_CASE_METHOD(DiskFileTest, "a smaller limit cuts the file at the next start",
                 "[kv_offload]") {
  {
    DiskFile file(options);
    for (int slot = 0; slot < 7; ++slot) write(file, record(slot, 10 + slot));
    CHECK_FALSE(file.was_emptied());
  }
  options.bytes = 32 << 10;
  const DiskFile file(options);
  CHECK(std::filesystem::file_size(options.path) <= 32u << 10);
  CHECK(file.records().size() == 3);
  CHECK_FALSE(file.was_emptied());
}

TEST_CASE_METHOD(DiskFileTest, "one engine at a time has the file", "[kv_offload]") {
  DiskFile file(options);
  CHECK_THROWS_WITH(DiskFile(options), Catch::Contains("in use by another engine"));
}

TEST_CASE_METHOD(DiskFileTest, "a folder that cannot be, and too few bytes, are named",
                 "[kv_offload]") {
  DiskFileOptions wrong = options;
  wrong.path = "/proc/no/such/engine-0.kv";
  CHECK_THROWS_WITH(DiskFile(wrong), Catch::Contains("/proc/no/such/engine-0.kv cannot be opened"));
  wrong = options;
  wrong.bytes = 8 << 10;
  CHECK_THROWS_WITH(DiskFile(wrong), Catch::Contains("of which a block takes"));
}

TEST_CASE_METHOD(DiskFileTest, "a flipped bit anywhere in a record is seen", "[kv_offload]") {
  DiskFile file(options);
  const DiskRecord one = record(2, 40);
  write(file, one);
  Bytes read(5000);
  REQUIRE(file.read(one, read));
  constexpr int kHeader = 56, kUsed = kHeader + 16 * 4 + 5000;
  const std::int64_t begin = 4096 + 2 * 8192;
  std::mt19937 random(1);
  for (int i = 0; i < 400; ++i) {
    const int at = i < kHeader ? i : static_cast<int>(random() % kUsed);
    const int bit = 1 << random() % 8;
    std::fstream bytes = raw();
    const int was = bytes.seekg(begin + at).get();
    bytes.seekp(begin + at).put(static_cast<char>(was ^ bit)).flush();
    INFO("byte " << at);
    CHECK_FALSE(file.read(one, read));
    bytes.seekp(begin + at).put(static_cast<char>(was)).flush();
  }
  CHECK(file.read(one, read));
  std::filesystem::resize_file(options.path, static_cast<std::uintmax_t>(begin + kUsed - 1));
  CHECK_FALSE(file.read(one, read));  // cut off
}

TEST_CASE_METHOD(DiskFileTest, "a file of anything is no reason to fail", "[kv_offload]") {
  { const DiskFile file(options); }
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    std::fstream bytes = raw();
    bytes.seekp(4096);
    for (int i = 0; i < 20000; ++i) bytes.put(static_cast<char>(random()));
    bytes.flush();
    const DiskFile file(options);
    CHECK(file.records().empty());
  }
}

}  // namespace
}  // namespace quire
