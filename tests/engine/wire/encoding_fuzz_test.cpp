#include <catch2/catch.hpp>
#include <cstdint>
#include <random>

#include "engine/wire/encoding.h"
#include "tests/engine/wire/sample_messages.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  // What decodes must encode again to what decodes to the same.
  if (const auto event = quire::decode_event(bytes); event.has_value() && event->has_value()) {
    const std::string once = quire::encode(**event);
    const auto again = quire::decode_event(once);
    if (!again.has_value() || quire::encode(**again) != once) std::abort();
  }
  if (const auto command = quire::decode_command(bytes);
      command.has_value() && command->has_value()) {
    const std::string once = quire::encode(**command);
    const auto again = quire::decode_command(once);
    if (!again.has_value() || quire::encode(**again) != once) std::abort();
  }
  quire::FrameReader reader;
  reader.append(bytes);
  while (true) {
    const auto frame = reader.next();
    if (!frame.has_value() || !frame->has_value()) return 0;
  }
}

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
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  }
  SUCCEED("no crash, and a stable second round");
}

}  // namespace
}  // namespace quire::test
