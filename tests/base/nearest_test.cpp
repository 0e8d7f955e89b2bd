#include "base/nearest.h"

#include <array>
#include <catch2/catch.hpp>
#include <string>

using quire::nearest;

TEST_CASE("a slip of the finger finds the word that was meant", "[base][nearest]") {
  constexpr std::array<std::string_view, 4> kFlags{"--max-num-seqs", "--max-model-len", "--port",
                                                   "--host"};
  CHECK(nearest("--max-num-seq", kFlags) == "--max-num-seqs");
  CHECK(nearest("--prot", kFlags) == "--port");  // two letters swapped are one slip
  CHECK(nearest("--max-modl-lne", kFlags) == "--max-model-len");
  CHECK(nearest("--port", kFlags) == "--port");
  CHECK_FALSE(nearest("--enable-lora", kFlags));
  CHECK_FALSE(nearest("", kFlags));
  CHECK_FALSE(nearest(std::string(100'000, '-'), kFlags));
  CHECK_FALSE(nearest("--port", {}));
}

TEST_CASE("the beginning of one word means that word", "[base][nearest]") {
  constexpr std::array<std::string_view, 4> kFlags{"--kv-cache-memory-bytes", "--kv-cache-dtype",
                                                   "--kv-role", "--kv-plane"};
  CHECK(nearest("--kv-cache-memory", kFlags) == "--kv-cache-memory-bytes");
  CHECK(nearest("--kv-cache-m", kFlags) == "--kv-cache-memory-bytes");
  CHECK_FALSE(nearest("--kv-cache", kFlags));  // of two
  constexpr std::array<std::string_view, 1> kOne{"--port"};
  CHECK_FALSE(nearest("--", kOne));
}
