#include "model/safetensors.h"

#include <catch2/catch.hpp>

#include <cstring>
#include <fstream>

#include "base/error.h"
#include "model/checkpoint.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temp_path.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

std::string with_header(const std::string& json, std::size_t data_bytes) {
  const std::uint64_t length = json.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file + json + std::string(data_bytes, '\1');
}

TensorTable parse(const std::string& file) {
  return parse_safetensors_header(file, file.size(), "m.safetensors");
}

std::string failure_of(const std::string& file) {
  try {
    parse(file);
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "";
}

struct Folder {
  explicit Folder(const std::string& name) : path(temp_path(name)) {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path / name, std::ios::binary) << bytes;
  }
  fs::path path;
};

TEST_CASE("a header gives dtype, shape and place of each tensor", "[model][safetensors]") {
  const auto tensors = parse(with_header(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
      R"("scalar":{"dtype":"F32","shape":[],"data_offsets":[12,16]},)"
      R"("none":{"dtype":"F32","shape":[0,4],"data_offsets":[16,16]}})",
      16));
  REQUIRE(tensors.size() == 3);
  CHECK(tensors.at("a").dtype == DType::bf16);
  CHECK(tensors.at("a").shape == std::vector<std::int64_t>{2, 3});
  CHECK(tensors.at("a").bytes == 12);
  CHECK(tensors.at("scalar").begin == tensors.at("a").begin + 12);
  CHECK(tensors.at("none").bytes == 0);
}

TEST_CASE("types that nothing computes with may be there", "[model][safetensors]") {
  const auto tensors =
      parse(with_header(R"({"mask":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]},)"
                        R"("d":{"dtype":"F64","shape":[1],"data_offsets":[3,11]}})",
                        11));
  CHECK_FALSE(tensors.at("mask").usable);
  CHECK_FALSE(tensors.at("d").usable);
}

TEST_CASE("a header that lies is refused, and the message says where", "[model][safetensors]") {
  struct Case {
    const char* name;
    std::string file;
    const char* message;
  };
  const auto c = GENERATE(values<Case>({
      {"empty file", "", "too few"},
      {"length beyond the file", std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10),
       "claims a header"},
      {"length beyond any header", std::string("\0\0\0\0\0\0\0\1{}", 10), "claims a header"},
      {"not JSON", with_header("{\"a\":", 0), "not JSON"},
      {"not an object", with_header("[1,2]", 0), "must be a JSON object"},
      {"tensor not an object", with_header(R"({"a":1})", 0), "\"a\" is not an object"},
      {"no dtype", with_header(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4), "no dtype"},
      {"unknown dtype", with_header(R"({"a":{"dtype":"F7","shape":[1],"data_offsets":[0,4]}})", 4),
       "\"F7\""},
      {"half a byte", with_header(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1),
       "12 bits, which are not whole bytes"},
      {"no shape", with_header(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4), "no shape"},
      {"negative extent",
       with_header(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4), "shape"},
      {"fractional extent",
       with_header(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4), "shape"},
      {"overflowing shape",
       with_header(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})",
                   0),
       "beyond any memory"},
      {"rank",
       with_header(R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],)"
                   R"("data_offsets":[0,1]}})",
                   1),
       "rank 9"},
      {"no offsets", with_header(R"({"a":{"dtype":"F32","shape":[1]}})", 4), "data_offsets"},
      {"one offset", with_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4),
       "data_offsets"},
      {"three offsets",
       with_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})", 4),
       "data_offsets"},
      {"offsets beyond the file",
       with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4), "truncated"},
      {"offsets backwards",
       with_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4), "lies at"},
      {"shape and bytes differ",
       with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4), "needs 8"},
      {"overlap",
       with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                   R"("b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                   8),
       "overlap"},
      {"twice",
       with_header(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                   R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                   2),
       "twice"},
  }));
  INFO(c.name);
  const std::string message = failure_of(c.file);
  CHECK_THAT(message, Catch::Contains(c.message));
  CHECK_THAT(message, Catch::Contains("m.safetensors"));
}

const std::string kOne =
    with_header(R"({"one":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 2);
const std::string kTwo =
    with_header(R"({"two":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1);

TEST_CASE("a checkpoint is one file or the shards of an index", "[model][safetensors]") {
  const Folder folder("quire_checkpoint_test");
  folder.write("a.safetensors", kOne);
  folder.write("b.safetensors", kTwo);
  folder.write("model.safetensors.index.json",
               R"({"weight_map":{"one":"a.safetensors","two":"b.safetensors"}})");
  const Checkpoint checkpoint(folder.path);
  REQUIRE(checkpoint.find("one") != nullptr);
  CHECK(checkpoint.find("one")->tensor->bytes == 2);
  CHECK(checkpoint.find("two")->file->path().filename() == "b.safetensors");
  CHECK(checkpoint.find("three") == nullptr);
}

TEST_CASE("shards without an index are those whose names are numbered", "[model][safetensors]") {
  const Folder folder("quire_numbered_test");
  folder.write("model-00002-of-00002.safetensors", kTwo);
  CHECK(Checkpoint::is_in(folder.path));
  CHECK_THROWS_WITH(Checkpoint(folder.path),
                    Catch::Contains("shard 1 of model-*-of-00002.safetensors is missing"));
  folder.write("model-00001-of-00002.safetensors", kOne);
  folder.write("golden.safetensors", kOne);  // of another purpose
  const Checkpoint both(folder.path);
  CHECK(both.find("one")->file->path().filename() == "model-00001-of-00002.safetensors");
  CHECK(both.find("two") != nullptr);
  CHECK(both.doubts().empty());
  CHECK(both.note().empty());
  folder.write("model-00002-of-00002.safetensors", kOne);
  CHECK_THROWS_WITH(Checkpoint(folder.path), Catch::Contains("\"one\" is in"));
  folder.write("model-2-of-00002.safetensors", kTwo);
  CHECK_THROWS_WITH(Checkpoint(folder.path), Catch::Contains("has the number of model-"));
}

TEST_CASE("one file beside an index is read, and told so", "[model][safetensors]") {
  const Folder folder("quire_both_forms_test");
  folder.write("a.safetensors", kTwo);
  folder.write("model.safetensors", kOne);
  folder.write("model.safetensors.index.json", R"({"weight_map":{"two":"a.safetensors"}})");
  const Checkpoint checkpoint(folder.path);
  CHECK(checkpoint.find("one") != nullptr);
  CHECK(checkpoint.find("two") == nullptr);
  CHECK(checkpoint.note().starts_with("model.safetensors is read, and not the shards of"));
}

TEST_CASE("an index that does not fit its shards is refused", "[model][safetensors]") {
  struct Case {
    const char* index;
    const char* message;
  };
  const auto c = GENERATE(values<Case>({
      {"{}", "weight_map"},
      {"[", "not JSON"},
      {R"({"weight_map":{"one":3}})", "weight_map.one: must be a string"},
      {R"({"weight_map":{"one":"../a.safetensors"}})", "outside the directory"},
      {R"({"weight_map":{"one":"missing.safetensors"}})", "missing.safetensors"},
  }));
  INFO(c.index);
  const Folder folder("quire_index_test");
  folder.write("a.safetensors", kOne);
  folder.write("twin.safetensors", kOne);
  folder.write("model.safetensors.index.json", c.index);
  CHECK_THROWS_WITH(Checkpoint(folder.path), Catch::Contains(c.message));
}

TEST_CASE("a tensor in doubt is refused where it is needed", "[model][safetensors]") {
  const Folder folder("quire_doubts_test");
  folder.write("a.safetensors", kOne);
  folder.write("b.safetensors", kTwo);
  folder.write("twin.safetensors", kOne);
  const auto open = [&](const char* index) {
    folder.write("model.safetensors.index.json", index);
    return Checkpoint(folder.path);
  };
  // Published indices name tensors that their shards do not have.
  const auto stale = open(R"({"weight_map":{"one":"a.safetensors","gone":"b.safetensors"}})");
  CHECK(stale.doubts().size() == 1);
  CHECK(stale.find("gone") == nullptr);
  CHECK(stale.find("one") != nullptr);
  CHECK(stale.find("two") != nullptr);
  const auto elsewhere = open(R"({"weight_map":{"two":"a.safetensors","x":"b.safetensors"}})");
  CHECK(elsewhere.find("one") != nullptr);
  CHECK_THROWS_WITH(elsewhere.find("two"), Catch::Contains("\"two\" is not in a.safetensors"));
  const auto twice = open(
      R"({"weight_map":{"one":"a.safetensors","x":"twin.safetensors","two":"b.safetensors"}})");
  CHECK(twice.find("two") != nullptr);
  CHECK_THROWS_WITH(twice.find("one"), Catch::Contains("another shard"));
}

TEST_CASE("a folder without weights is refused", "[model][safetensors]") {
  const Folder folder("quire_empty_test");
  CHECK_THROWS_WITH(Checkpoint(folder.path), Catch::Contains("model.safetensors.index.json"));
}

TEST_CASE("weights in another form are named, with what makes them readable", "[model]") {
  const test::ModelFolder folder("other_forms");
  const auto refused = [&](const char* words) {
    CHECK_THROWS_WITH(Checkpoint(folder.path()), Catch::Contains(words));
  };
  refused("has neither model.safetensors");
  std::ofstream(folder.path() / "pytorch_model.bin") << "PK";
  refused("pickles are not read");
  std::ofstream(folder.path() / "adapter_config.json") << "{}";
  refused("holds an adapter");
  std::filesystem::create_symlink("/nowhere/blob", folder.path() / "model.safetensors");
  refused("is a link to /nowhere/blob");
}

}  // namespace
}  // namespace quire
