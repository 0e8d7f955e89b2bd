// Headers that lie are refused with the place of the lie; mutated ones never lead outside the file.

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "gguf/archive.h"
#include "tests/fuzz/targets.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/temp_path.h"

namespace quire::gguf {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kF32 = 0, kQ4_0 = 2;

std::string complaint(const std::string& file) {
  try {
    parse_header(file, "model.gguf");
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "";
}

GgufBytes small() {
  GgufBytes file;
  file.text("general.architecture", "llama").u32("llama.block_count", 2);
  return file.tensor("a", {32, 2}, kQ4_0, 0).tensor("b", {4}, kF32, 64);
}

TEST_CASE("a header gives metadata and tensors of versions 2 and 3", "[gguf]") {
  for (const std::uint32_t version : {2u, 3u}) {
    GgufBytes file(version);
    file.text("general.name", "small").i32s("list", {3, -4}).texts("words", {"x", "", "yz"});
    file.f32("f", 0.5f).flag("yes", true).tensor("a", {32, 2}, kQ4_0, 0);
    const std::string bytes = file.with_data(36);
    const Header header = parse_header(bytes, "model.gguf");
    CHECK(header.version == version);
    CHECK(header.metadata.text("general.name") == "small");
    CHECK(header.metadata.integers("list", {-9, 9}) == std::vector<std::int64_t>{3, -4});
    CHECK(header.metadata.texts("words") == std::vector<std::string_view>{"x", "", "yz"});
    CHECK(header.metadata.number("f") == 0.5);
    CHECK(header.metadata.boolean("yes") == true);
    CHECK(!header.metadata.integer("absent"));
    REQUIRE(header.tensors.size() == 1);
    CHECK(header.tensors[0].shape == std::vector<std::int64_t>{2, 32});
    CHECK(header.tensors[0].bytes == 36);
    CHECK(header.tensors[0].begin + 36 == bytes.size());
  }
}

TEST_CASE("a lying header is refused with field and offset", "[gguf]") {
  const auto refused = [](const GgufBytes& file, std::size_t data, const std::string& why) {
    CHECK_THAT(complaint(file.with_data(data)), Catch::Contains("model.gguf: ") &&
                                                    Catch::Contains("byte") && Catch::Contains(why));
  };
  CHECK(complaint(small().with_data(80)).empty());
  refused(small(), 79, "\"b\" lies at [64, +16) of 79 bytes of data; is the file truncated?");
  refused(GgufBytes(1), 0, "version 1 is not supported (2, 3)");
  refused(GgufBytes(0x03000000), 0, "big-endian");
  CHECK_THAT(complaint("GGML" + std::string(40, '\0')), Catch::Contains("does not begin"));

  GgufBytes counts = small();
  counts.num_tensors = 1u << 30;
  refused(counts, 80, "tensor_count is 1073741824, more than");
  counts = small();
  counts.num_pairs = ~std::uint64_t{0};
  refused(counts, 80, "metadata_kv_count is 18446744073709551615");

  refused(small().tensor("c", {4}, 99, 96), 200, "\"c\" has unknown type 99");
  refused(small().tensor("c", {33}, kQ4_0, 96), 200, "rows of 33 elements, not whole blocks of 32");
  refused(small().tensor("c", {4}, kF32, 97), 200, "begins at 97, not at a multiple of 32");
  refused(small().tensor("c", {4}, kF32, 64), 200, "\"b\" and \"c\" overlap");
  refused(small().tensor("a", {4}, kF32, 96), 200, "\"a\" is there twice");
  refused(small().tensor("c", {0}, kF32, 96), 200, "an extent of 0");
  refused(small().tensor("c", {1, 1, 1, 1, 1}, kF32, 96), 200, "has rank 5");
  refused(small().tensor("c", {1ull << 40, 1ull << 40}, kF32, 96), 200, "larger than any memory");
  refused(small().u32("llama.block_count", 3), 80, "\"llama.block_count\" is there twice");
  refused(small().pair("odd", 13, ""), 80, "\"odd\" has unknown value type 13");
  refused(small().pair("nest", 9, GgufBytes::bytes_of(9u)), 80, "arrays of arrays");
  refused(small().pair("long", 9, GgufBytes::bytes_of(4u) + GgufBytes::bytes_of(1ull << 60)), 80,
          "\"long\" claims 1152921504606846976 items");
  refused(small().u32("general.alignment", 48), 200, "must be a power of two, is 48");
}

TEST_CASE("metadata of another kind or out of range are refused by key", "[gguf]") {
  const std::string bytes = small().text("t", "x").i32("n", -1).with_data(80);
  const Header header = parse_header(bytes, "model.gguf");
  const auto message = [](auto&& ask) {
    try {
      ask();
    } catch (const Failure& failure) {
      return std::string(failure.what());
    }
    return std::string();
  };
  CHECK_THAT(message([&] { header.metadata.need_integer("n"); }),
             Catch::Contains("model.gguf: metadata \"n\" at byte") &&
                 Catch::Contains("must be from 1 to 2147483647, is -1"));
  CHECK_THAT(message([&] { header.metadata.integer("t"); }),
             Catch::Contains("expected an integer, is a value of type string"));
  CHECK_THAT(message([&] { header.metadata.need_text("m"); }),
             Catch::Contains("metadata \"m\": is missing"));
}

TEST_CASE("shards are found by any of their names and must agree", "[gguf]") {
  const fs::path folder = temp_path("quire_gguf_shards");
  fs::remove_all(folder);
  fs::create_directories(folder);
  const auto write = [&](int i, const GgufBytes& file) {
    std::ofstream out(folder / ("m-0000" + std::to_string(i) + "-of-00002.gguf"), std::ios::binary);
    out << file.with_data(64);
  };
  const auto shard = [](int i, const std::string& tensor) {
    GgufBytes file;
    file.u32("split.count", 2).u32("split.no", static_cast<std::uint32_t>(i));
    file.i32("split.tensors.count", 2).tensor(tensor, {4}, kF32, 0);
    return file;
  };
  write(1, shard(0, "a"));
  CHECK_THROWS_WITH(Archive(folder / "m-00001-of-00002.gguf"),
                    Catch::Contains("m-00002-of-00002.gguf: is missing"));
  write(2, shard(1, "b"));
  for (const char* name : {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"}) {
    const Archive archive(folder / name);
    CHECK(archive.shards().size() == 2);
    CHECK(archive.find("a") != nullptr);
    CHECK(archive.find("b") != nullptr);
  }
  write(2, shard(1, "a"));
  CHECK_THROWS_WITH(Archive(folder / "m-00001-of-00002.gguf"),
                    Catch::Contains("tensor \"a\" is in another shard too"));
  write(2, shard(0, "b"));
  CHECK_THROWS_WITH(Archive(folder / "m-00001-of-00002.gguf"), Catch::Contains("must be 1"));
  fs::remove_all(folder);
}

TEST_CASE("mutated headers never lead outside the file", "[gguf][fuzz]") {
  std::ifstream in("tests/data/gguf/tokenizers/sentencepiece.gguf", std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  const std::string seeds[] = {small().with_data(80), text.str().substr(0, 6000),
                               small().texts("w", {"a", "bc"}).i32s("l", {1, 2}).with_data(96)};
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = seeds[random() % 3];
    for (int edits = 1 + static_cast<int>(random() % 4); edits > 0; --edits) {
      const std::size_t at = random() % bytes.size();
      if (random() % 4 == 0) {
        bytes.erase(at, random() % 16);
        if (bytes.empty()) bytes = "G";
      } else {
        bytes[at] = static_cast<char>(random() % 3 == 0 ? 0xff : random());
      }
    }
    // A copy of exactly its size, so that reading beyond it shows under a sanitizer.
    const std::vector<char> exact(bytes.begin(), bytes.end());
    fuzz::gguf({exact.data(), exact.size()});
  }
}

}  // namespace
}  // namespace quire::gguf
