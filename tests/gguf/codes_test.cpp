// tests/data/gguf/blocks.gguf: random blocks of every type, "stored.Q4_K" and the like, and what the
// public Python package gguf 0.19 makes of them, "expected.Q4_K" in float32.

#include <catch2/catch.hpp>

#include <cstring>

#include "gguf/archive.h"
#include "gguf/codes.h"

namespace quire::gguf {
namespace {

TEST_CASE("blocks of every type are the numbers that the reference reads", "[gguf]") {
  const Shard file("tests/data/gguf/blocks.gguf");
  int checked = 0;
  for (const TensorInfo& stored : file.header.tensors) {
    if (!stored.name.starts_with("stored.")) continue;
    const std::string type(stored.name.substr(7));
    INFO(type);
    CHECK(stored.type->name == type);
    const auto expected = std::ranges::find(file.header.tensors, "expected." + type,
                                            [](const TensorInfo& t) { return t.name; });
    REQUIRE(expected != file.header.tensors.end());
    std::vector<float> values(static_cast<std::size_t>(stored.shape.back()));
    dequantize(stored.type->type, file.map.data() + stored.begin, stored.shape.back(),
               values.data());
    std::vector<float> wanted(values.size());
    std::memcpy(wanted.data(), file.map.data() + expected->begin, expected->bytes);
    CHECK(values == wanted);
    ++checked;
  }
  CHECK(checked == 16);
}

}  // namespace
}  // namespace quire::gguf
