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
