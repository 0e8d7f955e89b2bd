#pragma once
// Reference versions of the instructions in cuda/device/async_copy.cuh and mma.cuh.

#include "cuda/device/mma.cuh"
#include "kernel.h"

namespace quire::cuda {

// In instrumented code, so that the sanitizers see the accesses.
inline void copy_now(void* to, const void* from, int bytes, int source_bytes) {
  for (int i = 0; i < bytes; ++i) {
    static_cast<char*>(to)[i] = i < source_bytes ? static_cast<const char*>(from)[i] : char{0};
  }
}
template <int kBytes>
void async_copy(void* shared, const void* global, int source_bytes = kBytes) {
  if (emulation::async_copy_issue(shared, global, kBytes, source_bytes)) {
    copy_now(shared, global, kBytes, source_bytes);
  }
}
inline void async_copy_commit(EMULATION_SITE) {
  if (!emulation::deleted(EMULATION_HERE("async_copy_commit"))) emulation::async_copy_commit();
}
template <int kGroupsLeft>
void async_copy_wait(EMULATION_SITE) {
  if (emulation::deleted(EMULATION_HERE("async_copy_wait"))) return;
  void* to;
  const void* from;
  int bytes, source_bytes;
  while (emulation::async_copy_take(kGroupsLeft, &to, &from, &bytes, &source_bytes)) {
    copy_now(to, from, bytes, source_bytes);
  }
}

struct MmaOperands {
  FragmentC* d;
  const FragmentA* a;
  const FragmentB* b;
};

template <class T>  // quire::bf16 or quire::f16
float half_of(std::uint32_t pair, int half) {
  return static_cast<float>(
      std::bit_cast<T>(static_cast<std::uint16_t>(half != 0 ? pair >> 16 : pair & 0xffff)));
}

template <class T>
EMULATION_NO_TSAN void mma_lanes(emulation::Lane** lanes, int) {
  float a[16][16], b[16][8];
  for (int t = 0; t < 32; ++t) {
    const auto& in = *static_cast<const MmaOperands*>(lanes[t]->in);
    const int row = t / 4, pair = t % 4 * 2;
    for (int h = 0; h < 2; ++h) {
      for (int i = 0; i < 4; ++i)
        a[row + (i & 1) * 8][pair + h + (i >> 1) * 8] = half_of<T>(in.a->r[i], h);
      for (int i = 0; i < 2; ++i) b[pair + h + i * 8][row] = half_of<T>(in.b->r[i], h);
    }
  }
  for (int t = 0; t < 32; ++t) {
    const auto& in = *static_cast<const MmaOperands*>(lanes[t]->in);
    for (int i = 0; i < 4; ++i) {
      const int row = t / 4 + (i >> 1) * 8, column = t % 4 * 2 + (i & 1);
      float sum = in.d->r[i];
      for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
      in.d->r[i] = sum;
    }
  }
}
inline void mma_bf16(FragmentC& d, const FragmentA& a, const FragmentB& b, EMULATION_SITE) {
  const MmaOperands operands{&d, &a, &b};
  emulation::warp_collective(~0u, mma_lanes<bf16>, &operands, nullptr, 0, false,
                             EMULATION_HERE("mma_bf16"));
}
inline void mma_f16(FragmentC& d, const FragmentA& a, const FragmentB& b, EMULATION_SITE) {
  const MmaOperands operands{&d, &a, &b};
  emulation::warp_collective(~0u, mma_lanes<f16>, &operands, nullptr, 0, false,
                             EMULATION_HERE("mma_f16"));
}

struct MatrixRow {
  std::uint32_t* r;
  const std::uint16_t* row;  // 8 elements
};
template <bool kTransposed>
EMULATION_NO_TSAN void exchange_rows(emulation::Lane** lanes, int) {
  const auto row = [&](int i) { return static_cast<const MatrixRow*>(lanes[i]->in)->row; };
  for (int m = 0; m < 4; ++m) {
    for (int t = 0; t < 32; ++t) {
      const int i = t / 4, j = t % 4 * 2;
      const std::uint16_t low = kTransposed ? row(m * 8 + j)[i] : row(m * 8 + i)[j];
      const std::uint16_t high = kTransposed ? row(m * 8 + j + 1)[i] : row(m * 8 + i)[j + 1];
      static_cast<const MatrixRow*>(lanes[t]->in)->r[m] = low | std::uint32_t{high} << 16;
    }
  }
}
// Each lane reads its row itself, so that sanitizers blame the right thread; then rows are
// exchanged.
template <bool kTransposed>
void load_rows(std::uint32_t (&r)[4], const void* row, emulation::Site site) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0)
    emulation::fail("ldmatrix: row %p is not 16-byte aligned", row);
  std::uint16_t mine[8];
  std::memcpy(mine, row, sizeof mine);
  const MatrixRow in{r, mine};
  emulation::warp_collective(~0u, exchange_rows<kTransposed>, &in, nullptr, 0, false, site);
}
inline void load_matrices(std::uint32_t (&r)[4], const void* row, EMULATION_SITE) {
  load_rows<false>(r, row, EMULATION_HERE("load_matrices"));
}
inline void load_matrices_transposed(std::uint32_t (&r)[4], const void* row, EMULATION_SITE) {
  load_rows<true>(r, row, EMULATION_HERE("load_matrices_transposed"));
}

}  // namespace quire::cuda
