// Large buffers of the CPU device: each its own, zero at first, and none wastes the rest of a huge
// page.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "cpu/cpu_backend.h"
#include "cpu/page_arena.h"

namespace quire {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::uintptr_t at(const Buffer& buffer) { return reinterpret_cast<std::uintptr_t>(buffer.data()); }

}  // namespace

TEST_CASE("Large buffers lie one behind the other, up to a page", "[cpu][arena]") {
  const auto device = make_cpu_device();
  std::vector<Buffer> buffers;
  for (int i = 0; i < 20; ++i)
    buffers.push_back(device->allocate(2 * kMiB + 4096 * (static_cast<std::size_t>(i) % 3) + 100,
                                       MemoryPurpose::weights));
  for (std::size_t i = 1; i < buffers.size(); ++i) {
    const std::size_t before = buffers[i - 1].bytes();
    CHECK(at(buffers[i]) == at(buffers[i - 1]) + (before + 4095) / 4096 * 4096);
  }
}

TEST_CASE("A buffer is nobody else's, and zero at first, whoever gave back", "[cpu][arena]") {
  const auto device = make_cpu_device();
  std::vector<std::vector<Buffer>> of_threads(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::vector<Buffer>& own = of_threads[static_cast<std::size_t>(t)];
      for (int i = 0; i < 12; ++i) {
        Buffer& buffer = own.emplace_back(device->allocate(
            2 * kMiB + static_cast<std::size_t>(i) * 700, MemoryPurpose::weights));
        auto* const bytes = static_cast<unsigned char*>(buffer.data());
        if (std::any_of(bytes, bytes + buffer.bytes(), [](unsigned char b) { return b != 0; }))
          std::abort();
        std::memset(bytes, t + 1, buffer.bytes());
        if (i % 3 == 1) own.erase(own.begin());
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < 4; ++t)
    for (const Buffer& buffer : of_threads[static_cast<std::size_t>(t)]) {
      auto* const bytes = static_cast<const unsigned char*>(buffer.data());
      CHECK(std::all_of(bytes, bytes + buffer.bytes(),
                        [&](unsigned char b) { return b == t + 1; }));
    }
}

TEST_CASE("What is larger than a range of addresses gets one of its own", "[cpu][arena]") {
  PageArena arena;
  void* const small = arena.take(3 * kMiB);
  void* const large = arena.take(3072 * kMiB);
  void* const next = arena.take(3 * kMiB);
  REQUIRE(small != nullptr);
  REQUIRE(large != nullptr);
  static_cast<char*>(large)[3072 * kMiB - 1] = 1;
  static_cast<char*>(next)[3 * kMiB - 1] = 1;
  PageArena::give_back(large, 3072 * kMiB);
  static_cast<char*>(small)[0] = 1;
  PageArena::give_back(small, 3 * kMiB);
  PageArena::give_back(next, 3 * kMiB);
}

TEST_CASE("A buffer may outlive its device", "[cpu][arena]") {
  PageArena* const arena = new PageArena;
  auto* const data = static_cast<char*>(arena->take(5 * kMiB));
  REQUIRE(data != nullptr);
  data[0] = 7;
  delete arena;
  data[5 * kMiB - 1] = 1;
  CHECK(data[0] == 7);
  CHECK(data[5 * kMiB - 1] == 1);
  PageArena::give_back(data, 5 * kMiB);
}

}  // namespace quire
