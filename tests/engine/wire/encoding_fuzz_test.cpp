#include <catch2/catch.hpp>
#include <random>

#include "engine/wire/encoding.h"
#include "tests/engine/wire/sample_messages.h"
#include "tests/fuzz/targets.h"

namespace quire::test {
namespace {

TEST_CASE("mutated messages never break the decoder", "[engine][wire][fuzz]") {
  std::vector<std::string> seeds;
  for (const Command& command : sample_commands()) seeds.push_back(encode(command));
  for (const EngineEvent& event : sample_events()) seeds.push_back(encode(event));
  std::mt19937 random(20'260'101);
  for (int round = 0; round < 40'000; ++round) {
    std::string bytes = seeds[random() % seeds.size()];
    for (unsigned edits = random() % 8; edits > 0 && !bytes.empty(); --edits) {
      const std::size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
          break;
        case 2:
          bytes.erase(at, random() % 16);
          break;
        default:
          bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 16));
      }
    }
    fuzz::wire(bytes);
  }
  SUCCEED("no crash, and a stable second round");
}

}  // namespace
}  // namespace quire::test
