#include "tests/perf/cpu_limits.h"

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

namespace quire::perf {
namespace {

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
        while (!go) {
        }
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

// Four streams, 64 bytes a turn each, fetched some pages ahead: more than the hardware fetches by
// itself.
void read_all(const std::uint64_t* data, std::size_t words) {
  constexpr std::size_t kAhead = 2048;  // words
  const std::size_t part = words / 4;
  std::uint64_t sums[4][8] = {};
  for (std::size_t i = 0; i + 8 <= part; i += 8) {
    for (std::size_t s = 0; s < 4; ++s) {
      __builtin_prefetch(data + s * part + i + kAhead, 0, 2);
      for (std::size_t j = 0; j < 8; ++j) sums[s][j] ^= data[s * part + i + j];
    }
  }
  for (const auto& s : sums) {
    for (const std::uint64_t v : s) sink += v;
  }
}

constexpr std::int64_t kTurns = 2'000'000;
constexpr int kChains = 12;

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

double gflops(int threads, double per_turn, void (*body)()) {
  const double seconds = parallel_seconds(threads, [&](int) { body(); });
  return static_cast<double>(threads) * static_cast<double>(kTurns) * kChains * per_turn / seconds /
         1e9;
}

}  // namespace

CpuLimits::CpuLimits(const CpuOptions& options)
    : threads_(options.threads > 0 ? options.threads : available_cores()),
      isa_(std::min(options.best_isa, detect_cpu_isa())) {
  probe();
}

void CpuLimits::probe() {
  constexpr std::size_t kWords = std::size_t{24} << 20;  // 192 MiB a thread
  std::vector<std::vector<std::uint64_t>> data(static_cast<std::size_t>(threads_),
                                               std::vector<std::uint64_t>(kWords, 1));
  const double seconds = parallel_seconds(
      threads_, [&](int t) { read_all(data[static_cast<std::size_t>(t)].data(), kWords); });
  read_gb_ = static_cast<double>(threads_) * kWords * 8. / seconds / 1e9;
  f32_gflops_ = isa_ >= CpuIsa::avx512 ? gflops(threads_, 32, multiply_avx512)
                : isa_ >= CpuIsa::avx2 ? gflops(threads_, 16, multiply_avx2)
                                       : 0;
  bf16_gflops_ = isa_ >= CpuIsa::avx512_bf16 ? gflops(threads_, 64, multiply_bf16) : f32_gflops_;
}

void CpuLimits::print() const {
  std::printf("limits: %d threads, %s: DRAM read %.1f GB/s, bf16 %.0f GFLOP/s, f32 %.0f GFLOP/s\n",
              threads_, name_of(isa_), read_gb_, bf16_gflops_, f32_gflops_);
}

void CpuLimits::print_again() const {
  CpuLimits again = *this;
  again.probe();
  again.print();
}

}  // namespace quire::perf
