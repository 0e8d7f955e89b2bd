#include "cpu/thread_pool.h"

#include <time.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <numeric>
#include <thread>

#include "cpu/cpu_backend.h"

namespace quire::test {
namespace {

double process_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

TEST_CASE("parallel_for runs every index once, whatever the sizes", "[cpu][thread_pool]") {
  const int threads = GENERATE(1, 2, 5);
  ThreadPool pool(threads);
  CHECK(pool.threads() == threads);
  for (const std::int64_t count : {0, 1, 2, 7, 64, 1000}) {
    for (const std::int64_t grain : {1, 3, 100}) {
      std::vector<int> runs(static_cast<std::size_t>(count));
      pool.parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) ++runs[static_cast<std::size_t>(i)];
      });
      CHECK(std::count(runs.begin(), runs.end(), 1) == count);
    }
  }
}

TEST_CASE("loops in quick succession do not mix", "[cpu][thread_pool]") {
  ThreadPool pool(4);
  std::vector<std::int64_t> values(64);
  for (int round = 0; round < 3000; ++round) {
    const std::int64_t count = 1 + round % 64;
    pool.parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) values[static_cast<std::size_t>(i)] += i;
    });
    if (round % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (std::int64_t i = 0; i < 64; ++i) {
    std::int64_t rounds = 0;
    for (int round = 0; round < 3000; ++round) rounds += round % 64 >= i ? 1 : 0;
    CHECK(values[static_cast<std::size_t>(i)] == rounds * i);
  }
}

TEST_CASE("an idle pool uses no processor time", "[cpu][thread_pool]") {
  ThreadPool pool(4);
  pool.parallel_for(100, 1, [](std::int64_t, std::int64_t) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const double before = process_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK(process_seconds() - before < 0.003);
}

TEST_CASE("the caller does not wait for workers that have not come", "[cpu][thread_pool]") {
  // Far more workers than cores: most never run during a short loop.
  ThreadPool pool(64);
  for (int i = 0; i < 200; ++i) {
    std::atomic<int> sum{0};
    pool.parallel_for(
        8, 1, [&](std::int64_t begin, std::int64_t end) { sum += static_cast<int>(end - begin); });
    CHECK(sum == 8);
  }
}

TEST_CASE("the machine has at least one core and a known instruction set", "[cpu]") {
  CHECK(available_cores() >= 1);
  CHECK(available_cores() <= static_cast<int>(std::thread::hardware_concurrency()));
  CHECK(std::string(name_of(detect_cpu_isa())) != "unknown");
}

TEST_CASE("the CPU device gives aligned memory and says what is left", "[cpu][device]") {
  const auto device = make_cpu_device();
  const MemoryInfo memory = device->memory();
  CHECK(memory.total > 0);
  CHECK(memory.available > 0);
  CHECK(memory.available <= memory.total);
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{100}, std::size_t{5} << 20}) {
    const Buffer buffer = device->allocate_zeroed(bytes);
    CHECK(buffer.bytes() == bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64 == 0);
    const auto* const begin = static_cast<const char*>(buffer.data());
    CHECK(std::all_of(begin, begin + bytes, [](char c) { return c == 0; }));
  }
  CHECK(device->capture([] { FAIL("the body is not run"); }) == nullptr);
}

// In pages.
long resident_pages() {
  std::ifstream file("/proc/self/statm");
  long size = 0, resident = 0;
  file >> size >> resident;
  return resident;
}

TEST_CASE("a zeroed buffer is taken when the call returns, others when they are used",
          "[cpu][device]") {
  const auto device = make_cpu_device();
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  constexpr long kPages = kBytes / 4096;
  const long before = resident_pages();
  const Buffer promised = device->allocate(kBytes);
  CHECK(resident_pages() - before < kPages / 2);
  const Buffer taken = device->allocate_zeroed(kBytes);
  CHECK(resident_pages() - before > kPages / 2);
}

}  // namespace quire::test
