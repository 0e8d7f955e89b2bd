#pragma once
// Hopper's asynchronous tensor core products: the four warps of a warpgroup compute D (64 × N) = or
// += A (64 × 16) · B (16 × N), A and D in registers, B in shared memory. Warp w has rows 16 w to
// 16 w + 15, with fragments as in mma.cuh. PTX ISA, wgmma.mma_async.
//
//   fence_async_proxy(); __syncthreads();       what threads wrote may be read by the tensor cores
//   warpgroup_fence();                          registers written so far may be operands
//   warpgroup_mma<T, Major::k>(d, a, b, false); …; warpgroup_commit();
//   warpgroup_wait<0>();                        d may be read, a written, b overwritten
//
// A may also be in shared memory: 64 rows of a panel, of which a product takes 32 bytes each. e4m3
// is multiplied so alone, 32 of K at a time; its sums keep fewer bits than float32 has.
//
// A pointer to shared memory becomes a descriptor; a matrix there consists of panels, 128 bytes
// wide, whose 16-byte chunks are swizzled (swizzled_chunk) and which begin at multiples of 1,024
// bytes.

#include "cuda/device/mma.cuh"

namespace quire::cuda {

// Which dimension of B runs along the 128 bytes of a panel's row.
enum class Major : std::uint8_t { k, n };

struct SharedMatrix {
  std::uint64_t descriptor;
  // bytes: a multiple of 16.
  __device__ __forceinline__ SharedMatrix advanced(int bytes) const {
    return {descriptor + static_cast<std::uint64_t>(bytes >> 4)};
  }
};

// The place of a row's 16-byte chunk.
__device__ __forceinline__ int swizzled_chunk(int row, int chunk) { return chunk ^ (row & 7); }

// Of a shared address, and the bytes between panels (Major::n only): PTX ISA, "Matrix Descriptor
// Format", 128-byte swizzle, eight rows of 128 bytes after each other.
__device__ __forceinline__ SharedMatrix describe_matrix(std::uint32_t address, int panel_bytes) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62, kEightRows = 1024 >> 4;
  return {(address & 0x3ffffu) >> 4 | static_cast<std::uint64_t>(panel_bytes >> 4) << 16 |
          kEightRows << 32 | kSwizzle128};
}

}  // namespace quire::cuda

#ifdef __CUDACC__
namespace quire::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr bool kHasWarpgroups = true;
#else
constexpr bool kHasWarpgroups = false;  // the host pass, and code for other devices
#endif

__device__ __forceinline__ SharedMatrix shared_matrix(const void* at, int panel_bytes = 0) {
  return describe_matrix(static_cast<std::uint32_t>(__cvta_generic_to_shared(at)), panel_bytes);
}

// Writes 16 bytes of an operand; as whatever threads write, products see them behind a
// fence_async_proxy.
template <class Chunk>
__device__ __forceinline__ void store_operand(void* shared, const Chunk& chunk) {
  static_assert(sizeof chunk == 16 && alignof(Chunk) == 16);
  *static_cast<Chunk*>(shared) = chunk;
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}
__device__ __forceinline__ void warpgroup_fence() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}
__device__ __forceinline__ void warpgroup_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
template <int kGroupsLeft>
__device__ __forceinline__ void warpgroup_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kGroupsLeft) : "memory");
}
#else
__device__ __forceinline__ void fence_async_proxy() {}
__device__ __forceinline__ void warpgroup_fence() {}
__device__ __forceinline__ void warpgroup_commit() {}
template <int kGroupsLeft>
__device__ __forceinline__ void warpgroup_wait() {}
#endif

// Keeps the compiler from reading or moving registers that a product has not finished with.
template <int kCount>
__device__ __forceinline__ void hold(FragmentC (&d)[kCount]) {
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(d[j].r[i])::"memory");
  }
}
// Likewise operands, until it has.
template <int kCount>
__device__ __forceinline__ void hold(FragmentA (&a)[kCount]) {
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(a[j].r[i])::"memory");
  }
}

#define QUIRE_C1(j) "+f"(d[j].r[0]), "+f"(d[j].r[1]), "+f"(d[j].r[2]), "+f"(d[j].r[3])
#define QUIRE_C4(j) QUIRE_C1(j), QUIRE_C1(j + 1), QUIRE_C1(j + 2), QUIRE_C1(j + 3)
#define QUIRE_C8(j) QUIRE_C4(j), QUIRE_C4(j + 4)
#define QUIRE_A "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3])
#define QUIRE_D16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define QUIRE_D32                                                                      \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22," \
  "%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define QUIRE_D64                                                                            \
  QUIRE_D32                                                                                  \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53" \
  ",%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define QUIRE_WGMMA_32(type)                                                     \
  asm volatile(                                                                  \
      "{.reg .pred p; setp.ne.b32 p, %21, 0;\n"                                  \
      "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type " {" QUIRE_D16 \
      "},{%16,%17,%18,%19},%20,p,1,1,%22;}\n"                                    \
      : QUIRE_C4(0)                                                              \
      : QUIRE_A, "l"(b.descriptor), "r"(static_cast<int>(accumulate)),           \
        "n"(kMajor == Major::n ? 1 : 0)                                          \
      : "memory")
#define QUIRE_WGMMA_32_SHARED(type)                                              \
  asm volatile(                                                                  \
      "{.reg .pred p; setp.ne.b32 p, %18, 0;\n"                                  \
      "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type " {" QUIRE_D16 \
      "},%16,%17,p,1,1,0,0;}\n"                                                  \
      : QUIRE_C4(0)                                                              \
      : "l"(a.descriptor), "l"(b.descriptor), "r"(static_cast<int>(accumulate))  \
      : "memory")
#define QUIRE_WGMMA_64_SHARED(shape, type, order)                                \
  asm volatile(                                                                  \
      "{.reg .pred p; setp.ne.b32 p, %34, 0;\n"                                  \
      "wgmma.mma_async.sync.aligned." shape ".f32." type "." type " {" QUIRE_D32 \
      "},%32,%33,p,1,1" order ";}\n"                                             \
      : QUIRE_C8(0)                                                              \
      : "l"(a.descriptor), "l"(b.descriptor), "r"(static_cast<int>(accumulate))  \
      : "memory")
#define QUIRE_WGMMA_128_SHARED(shape, type, order)                               \
  asm volatile(                                                                  \
      "{.reg .pred p; setp.ne.b32 p, %66, 0;\n"                                  \
      "wgmma.mma_async.sync.aligned." shape ".f32." type "." type " {" QUIRE_D64 \
      "},%64,%65,p,1,1" order ";}\n"                                             \
      : QUIRE_C8(0), QUIRE_C8(8)                                                 \
      : "l"(a.descriptor), "l"(b.descriptor), "r"(static_cast<int>(accumulate))  \
      : "memory")
#define QUIRE_WGMMA_64(type)                                                     \
  asm volatile(                                                                  \
      "{.reg .pred p; setp.ne.b32 p, %37, 0;\n"                                  \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" QUIRE_D32 \
      "},{%32,%33,%34,%35},%36,p,1,1,%38;}\n"                                    \
      : QUIRE_C8(0)                                                              \
      : QUIRE_A, "l"(b.descriptor), "r"(static_cast<int>(accumulate)),           \
        "n"(kMajor == Major::n ? 1 : 0)                                          \
      : "memory")
#define QUIRE_WGMMA_128(type)                                                     \
  asm volatile(                                                                   \
      "{.reg .pred p; setp.ne.b32 p, %69, 0;\n"                                   \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" QUIRE_D64 \
      "},{%64,%65,%66,%67},%68,p,1,1,%70;}\n"                                     \
      : QUIRE_C8(0), QUIRE_C8(8)                                                  \
      : QUIRE_A, "l"(b.descriptor), "r"(static_cast<int>(accumulate)),            \
        "n"(kMajor == Major::n ? 1 : 0)                                           \
      : "memory")

// N = 8 · kBlocks: 32, 64 or 128.
template <class T, Major kMajor, int kBlocks>
__device__ __forceinline__ void warpgroup_mma(FragmentC (&d)[kBlocks], const FragmentA& a,
                                              SharedMatrix b, bool accumulate) {
  static_assert(kBlocks == 4 || kBlocks == 8 || kBlocks == 16);
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if constexpr (kBlocks == 4) {
    if constexpr (std::is_same_v<T, __half>) {
      QUIRE_WGMMA_32("f16");
    } else {
      QUIRE_WGMMA_32("bf16");
    }
  } else if constexpr (kBlocks == 8) {
    if constexpr (std::is_same_v<T, __half>) {
      QUIRE_WGMMA_64("f16");
    } else {
      QUIRE_WGMMA_64("bf16");
    }
  } else {
    if constexpr (std::is_same_v<T, __half>) {
      QUIRE_WGMMA_128("f16");
    } else {
      QUIRE_WGMMA_128("bf16");
    }
  }
#endif
}

// A and B in shared memory, K along the 128 bytes of both. N = 32 of bf16 and f16; 64 or 128 of
// e4m3, too.
template <class T, int kBlocks>
__device__ __forceinline__ void warpgroup_mma(FragmentC (&d)[kBlocks], SharedMatrix a,
                                              SharedMatrix b, bool accumulate) {
  constexpr bool kFp8 = std::is_same_v<T, __nv_fp8_e4m3>;
  static_assert(kBlocks == 4 || kBlocks == 8 || kBlocks == 16);
  static_assert(!kFp8 || kBlocks != 4);
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  if constexpr (kBlocks == 4) {
    if constexpr (std::is_same_v<T, __half>) {
      QUIRE_WGMMA_32_SHARED("f16");
    } else {
      QUIRE_WGMMA_32_SHARED("bf16");
    }
  } else if constexpr (kBlocks == 8) {
    if constexpr (kFp8) {
      QUIRE_WGMMA_64_SHARED("m64n64k32", "e4m3", "");
    } else if constexpr (std::is_same_v<T, __half>) {
      QUIRE_WGMMA_64_SHARED("m64n64k16", "f16", ",0,0");
    } else {
      QUIRE_WGMMA_64_SHARED("m64n64k16", "bf16", ",0,0");
    }
  } else {
    if constexpr (kFp8) {
      QUIRE_WGMMA_128_SHARED("m64n128k32", "e4m3", "");
    } else if constexpr (std::is_same_v<T, __half>) {
      QUIRE_WGMMA_128_SHARED("m64n128k16", "f16", ",0,0");
    } else {
      QUIRE_WGMMA_128_SHARED("m64n128k16", "bf16", ",0,0");
    }
  }
#endif
}

#undef QUIRE_WGMMA_128
#undef QUIRE_WGMMA_64
#undef QUIRE_WGMMA_128_SHARED
#undef QUIRE_WGMMA_64_SHARED
#undef QUIRE_WGMMA_32_SHARED
#undef QUIRE_WGMMA_32
#undef QUIRE_D64
#undef QUIRE_D32
#undef QUIRE_D16
#undef QUIRE_A
#undef QUIRE_C8
#undef QUIRE_C4
#undef QUIRE_C1

}  // namespace quire::cuda
#else
#include <cuda_emulation/warpgroup.h>
#endif
