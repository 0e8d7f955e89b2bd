#include "cpu/machine_limits.h"

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/error.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace quire {
namespace {

// Being put aside for other processes does not count for one thread.
double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds of the slowest of `threads` threads that each run body(thread) once, the best of several.
double parallel_seconds(int threads, const std::function<void(int)>& body) {
  const auto now = threads == 1 ? thread_seconds : wall_seconds;
  double best = 1e30;
  for (int repeat = 0; repeat < 5; ++repeat) {
    std::atomic<int> ready{0};
    std::atomic<bool> go{false};
    std::vector<double> seconds(static_cast<std::size_t>(threads));
    std::vector<std::thread> workers;
    for (int t = 0; t < threads; ++t) {
      workers.emplace_back([&, t] {
        ++ready;
        while (!go) std::this_thread::yield();  // real-time threads run until they give way
        const double begin = now();
        body(t);
        seconds[static_cast<std::size_t>(t)] = now() - begin;
      });
    }
    while (ready != threads) std::this_thread::yield();
    go = true;
    for (std::thread& worker : workers) worker.join();
    best = std::min(best, *std::max_element(seconds.begin(), seconds.end()));
  }
  return best;
}

std::atomic<std::uint64_t> sink{0};  // keeps the probes' results alive

// Four streams, 64 bytes a turn each. Some machines fetch enough by themselves, others more where
// they are told some pages ahead.
template <bool kFetches>
void read_all(const std::uint64_t* data, std::size_t words) {
  constexpr std::size_t kAhead = 2048;  // words
  const std::size_t part = words / 4;
  std::uint64_t sums[4][8] = {};
  for (std::size_t i = 0; i + 8 <= part; i += 8) {
    for (std::size_t s = 0; s < 4; ++s) {
      if constexpr (kFetches) __builtin_prefetch(data + s * part + i + kAhead, 0, 2);
      for (std::size_t j = 0; j < 8; ++j) sums[s][j] ^= data[s * part + i + j];
    }
  }
  for (const auto& s : sums) {
    for (const std::uint64_t v : s) sink += v;
  }
}

constexpr int kChains = 12;
constexpr std::int64_t kTurns = 1'000'000, kTileTurns = 40'000;

#if defined(__x86_64__)

__attribute__((target("avx512f,avx512bf16"))) void multiply_bf16() {
  __m512 acc[kChains];
  __m512bh x{}, y{};
  for (auto& a : acc) a = _mm512_setzero_ps();
  for (std::int64_t i = 0; i < kTurns; ++i) {
    for (auto& a : acc) a = _mm512_dpbf16_ps(a, x, y);
    asm volatile("" : "+v"(x), "+v"(y));
  }
  float total = 0;
  for (auto& a : acc) total += a[0];
  sink += static_cast<std::uint64_t>(total);
}

__attribute__((target("avx512f"))) void multiply_avx512() {
  __m512 acc[kChains], x = _mm512_setzero_ps(), y = x;
  for (auto& a : acc) a = _mm512_setzero_ps();
  for (std::int64_t i = 0; i < kTurns; ++i) {
    for (auto& a : acc) a = _mm512_fmadd_ps(x, y, a);
    asm volatile("" : "+v"(x), "+v"(y));
  }
  float total = 0;
  for (auto& a : acc) total += a[0];
  sink += static_cast<std::uint64_t>(total);
}

__attribute__((target("avx2,fma"))) void multiply_avx2() {
  __m256 acc[kChains], x = _mm256_setzero_ps(), y = x;
  for (auto& a : acc) a = _mm256_setzero_ps();
  for (std::int64_t i = 0; i < kTurns; ++i) {
    for (auto& a : acc) a = _mm256_fmadd_ps(x, y, a);
    asm volatile("" : "+x"(x), "+x"(y));
  }
  for (auto& a : acc) sink += static_cast<std::uint64_t>(_mm256_cvtss_f32(a));
}

__attribute__((target("avx512f,avx512vnni"))) void multiply_int8() {
  __m512i acc[kChains], x = _mm512_set1_epi8(0), y = x;
  for (auto& a : acc) a = _mm512_setzero_si512();
  for (std::int64_t i = 0; i < kTurns; ++i) {
    for (auto& a : acc) a = _mm512_dpbusd_epi32(a, x, y);
    asm volatile("" : "+v"(x), "+v"(y));
  }
  for (auto& a : acc) sink += static_cast<std::uint64_t>(_mm512_cvtsi512_si32(a));
}

// Four products of 16 × 32 by 32 × 16 a turn.
__attribute__((target("amx-tile,amx-bf16"))) void multiply_amx() {
  alignas(64) std::uint8_t shapes[64] = {1};
  for (int t = 0; t < 8; ++t) {
    shapes[16 + 2 * t] = 64;  // bytes of a row
    shapes[48 + t] = 16;      // rows
  }
  asm volatile("" : : "m"(shapes));  // all is read, of which g++ 12's intrinsic names eight bytes
  _tile_loadconfig(shapes);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  for (std::int64_t i = 0; i < kTileTurns; ++i) {
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 5);
    _tile_dpbf16ps(2, 4, 5);
    _tile_dpbf16ps(3, 4, 5);
  }
  _tile_release();
}

double gops(int threads, double operations, void (*body)()) {
  const double seconds = parallel_seconds(threads, [&](int) { body(); });
  return threads * operations / seconds / 1e9;
}

void probe_products(MachineLimits& limits, int threads, CpuIsa isa, CpuIsa best_isa) {
  constexpr double kTotal = static_cast<double>(kTurns) * kChains;
  if (isa >= CpuIsa::avx512) {
    limits.f32_gflops = gops(threads, kTotal * 32, multiply_avx512);
  } else if (isa >= CpuIsa::avx2) {
    limits.f32_gflops = gops(threads, kTotal * 16, multiply_avx2);
  }
  limits.bf16_gflops = limits.f32_gflops;
  if (isa >= CpuIsa::amx_bf16) {
    limits.bf16_gflops = gops(threads, kTileTurns * 4. * 16 * 16 * 32 * 2, multiply_amx);
  } else if (isa >= CpuIsa::avx512_bf16) {
    limits.bf16_gflops = gops(threads, kTotal * 64, multiply_bf16);
  }
  if (best_isa > CpuIsa::avx512 && isa >= CpuIsa::avx512 && has_avx512_vnni()) {
    limits.int8_gops = gops(threads, kTotal * 128, multiply_int8);
  }
}
#else
void probe_products(MachineLimits&, int, CpuIsa, CpuIsa) {}
#endif

// Pages as large as the weights'.
struct Pages {
  explicit Pages(std::size_t bytes)
      : bytes(bytes), data(static_cast<std::uint64_t*>(std::aligned_alloc(kHugePage, bytes))) {
    if (data == nullptr) throw Failure(ErrorCode::unavailable, "no memory to probe its speed with");
    madvise(data, bytes, MADV_HUGEPAGE);
    std::memset(data, 1, bytes);
  }
  ~Pages() { std::free(data); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;
  std::size_t bytes;
  std::uint64_t* data;
};

}  // namespace

MachineLimits probe_machine(int threads, CpuIsa best_isa) {
  constexpr std::size_t kBytes = std::size_t{192} << 20;  // of each thread
  std::vector<std::unique_ptr<Pages>> pages;
  for (int t = 0; t < threads; ++t) pages.push_back(std::make_unique<Pages>(kBytes));
  const auto rate = [&](std::size_t bytes, double seconds) {
    return threads * static_cast<double>(bytes) / seconds / 1e9;
  };
  MachineLimits limits;
  const auto read_rate = [&](auto read) {
    return rate(kBytes, parallel_seconds(threads, [&](int t) {
                  read(pages[static_cast<std::size_t>(t)]->data, kBytes / 8);
                }));
  };
  limits.read_gb = std::max(read_rate(read_all<false>), read_rate(read_all<true>));
  limits.copy_gb = rate(kBytes / 2, parallel_seconds(threads, [&](int t) {
                          std::uint64_t* const data = pages[static_cast<std::size_t>(t)]->data;
                          std::memcpy(data, data + kBytes / 16, kBytes / 2);
                        }));
  pages.clear();
  probe_products(limits, threads, std::min(best_isa, detect_cpu_isa()), best_isa);
  return limits;
}

}  // namespace quire
