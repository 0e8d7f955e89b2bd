// x · Wᵀ on AMX tiles (Intel SDM volume 1, chapter 18: TMUL).

#include <immintrin.h>

#include "cpu/kernels/gemm_amx.h"

namespace quire::cpu {
namespace QUIRE_CPU_ISA {
namespace {

struct HardwareTiles {
  // Tiles as AmxGemm numbers them: outputs 0 … 3, W 4 and 5, x 6 and 7.
  static void configure(int first, int second) {
    struct alignas(64) Config {
      std::uint8_t palette, start_row, reserved[14];
      std::uint16_t row_bytes[16];
      std::uint8_t rows[16];
    } config = {};
    config.palette = 1;
    const auto set = [&](int tile, int columns) {
      config.rows[tile] = kTileSide;
      config.row_bytes[tile] = static_cast<std::uint16_t>(4 * columns);
    };
    for (int half = 0; half < 2; ++half) {
      const int columns = half == 0 ? first : second;
      set(half, columns);
      set(2 + half, columns);
      set(4 + half, kTileSide);
      set(6 + half, columns);
    }
    asm volatile("" : : "m"(config));  // all is read, of which g++ 12's intrinsic names eight bytes
    _tile_loadconfig(&config);
  }
  static void release() { _tile_release(); }
  // The tile's number is part of an instruction's text, so each has a line of its own.
  template <int kTile>
  static void zero() {
    if constexpr (kTile == 0) _tile_zero(0);
    if constexpr (kTile == 1) _tile_zero(1);
    if constexpr (kTile == 2) _tile_zero(2);
    if constexpr (kTile == 3) _tile_zero(3);
  }
  template <int kTile>
  static void load(const void* data, Index stride) {
    if constexpr (kTile == 4) _tile_loadd(4, data, stride);
    if constexpr (kTile == 5) _tile_loadd(5, data, stride);
    if constexpr (kTile == 6) _tile_loadd(6, data, stride);
    if constexpr (kTile == 7) _tile_loadd(7, data, stride);
  }
  template <int kTile>
  static void store(void* data, Index stride) {
    if constexpr (kTile == 0) _tile_stored(0, data, stride);
    if constexpr (kTile == 1) _tile_stored(1, data, stride);
    if constexpr (kTile == 2) _tile_stored(2, data, stride);
    if constexpr (kTile == 3) _tile_stored(3, data, stride);
  }
  template <int kC, int kA, int kB>
  static void dot() {
    if constexpr (kC == 0) _tile_dpbf16ps(0, 4, 6);
    if constexpr (kC == 1) _tile_dpbf16ps(1, 4, 7);
    if constexpr (kC == 2) _tile_dpbf16ps(2, 5, 6);
    if constexpr (kC == 3) _tile_dpbf16ps(3, 5, 7);
    static_assert(kA == 4 + kC / 2 && kB == 6 + kC % 2);
  }
};

}  // namespace
}  // namespace QUIRE_CPU_ISA

void gemm_amx_bf16(const GemmArgs& args, std::int64_t m_begin, std::int64_t m_end,
                   std::int64_t n_begin, std::int64_t n_end, void* scratch) {
  using namespace QUIRE_CPU_ISA;
  AmxGemm<HardwareTiles>(args, static_cast<std::uint32_t*>(scratch))
      .run(m_begin, m_end, n_begin, n_end);
}

}  // namespace quire::cpu
