#pragma once
// Copies of tiles of keys from a paged cache to shared memory, 16 bytes a thread at a time. Pages
// hold a multiple of kPageKeys tokens, so an entry of the block table serves that many rows, and
// becomes one address; what is left for a copy is an addition. Values lie where keys do, a fixed
// distance away.

#include <bit>

#include "cuda/device/async_copy.cuh"
#include "cuda/device/fast_divide.cuh"
#include "cuda/device/vec.cuh"

namespace quire::cuda {

constexpr int kPageKeys = 16;  // under one entry of the table at least

// Whether pages are such, with offsets in one of 32 bits. Caches are [blocks, block size, …].
inline bool has_plain_pages(const TensorView& cache) {
  const auto element = static_cast<std::int64_t>(size_of(cache.dtype()));
  return cache.extent(1) % kPageKeys == 0 && cache.stride(0) >= 0 && cache.stride(1) >= 0 &&
         cache.stride(0) * element <= 0xffffffffll;
}
inline bool has_plain_pages(const TensorView& k, const TensorView& v) {
  bool alike = k.rank() == v.rank();
  for (int i = 0; alike && i < k.rank(); ++i) alike = k.stride(i) == v.stride(i);
  return alike && has_plain_pages(k);
}

// Where the keys of one head of a request are.
template <class Cache>
struct PageSource {
  const Cache* data;  // of page 0
  std::int64_t page_stride, token_stride;
  FastDivide page_keys;
  const std::int32_t* table;
  std::int64_t table_row;  // of the request, in the table
};

// A tile of kKeys rows, kDim elements each, copied by kThreads threads of which kLanes share a row.
// kSpares: registers are scarce in the loop over tiles.
template <class Cache, int kKeys, int kDim, int kThreads, int kLanes = kDim / kVecWidth<Cache>,
          bool kSpares = false>
class PageCopies {
 public:
  static constexpr int kChunks = kDim / kVecWidth<Cache>, kChunksOfLane = kChunks / kLanes;
  static constexpr int kRows =  // of a pass
      std::min(kKeys, static_cast<int>(std::bit_floor(static_cast<unsigned>(kThreads / kLanes))));

  // The thread's lane of a row, and its row of the first pass; none from kRows on. Keys outside of
  // [begin, end) become zeros: their pages may be somebody else's.
  __device__ __forceinline__ PageCopies(const PageSource<Cache>& s, int begin, int end, int row,
                                        int lane)
      : table_(s.table),
        table_row_(static_cast<std::uint32_t>(s.table_row)),
        page_bytes_(static_cast<std::uint32_t>(s.page_stride * sizeof(Cache))),
        token_bytes_(static_cast<std::uint32_t>(s.token_stride * sizeof(Cache))),
        page_keys_(s.page_keys),
        row_(row),
        lane_(lane),
        begin_(begin),
        end_(end),
        keys_(reinterpret_cast<std::uintptr_t>(s.data) + lane * 16 +
              row % kPageKeys * token_bytes_) {}

  // Fetches what the copies of this tile need of the table.
  __device__ __forceinline__ void look_up(int tile) {
    const int first = here(row_);
#pragma unroll
    for (int e = 0; e < kEntries; ++e) {
      const int key = tile * kKeys + (first / kPageKeys + e * kStep) * kPageKeys;
      const int page = page_keys_(key);
      page_[e] =
          key < end_
              ? static_cast<std::uint32_t>(table_[table_row_ + static_cast<std::uint32_t>(page)])
              : 0u;
      in_page_[e] = static_cast<std::uint32_t>(key - page * page_keys_.divisor);
    }
  }
  // Of the tile that was looked up last: copy(row, chunk, from, bytes) for each of the thread's
  // chunks; bytes is 0 for those to be zero.
  template <class Copy>
  __device__ __forceinline__ void for_each(int tile, const Copy& copy) const {
    if (row_ >= kRows) return;  // threads that no row is left for
    const int first = here(row_), lane = here(lane_);
#pragma unroll
    for (int e = 0; e < kEntries; ++e) {
      const std::uintptr_t from =
          keys_ + std::uint64_t{page_[e]} * page_bytes_ + std::uint64_t{in_page_[e]} * token_bytes_;
#pragma unroll
      for (int i = 0; i < kPassesOfEntry; ++i) {
        const int row = first + (e * kPassesOfEntry + i) * kRows;
        const std::uintptr_t place = from + i * kRows * token_bytes_;
        const bool there = static_cast<unsigned>(tile * kKeys + row - begin_) <
                           static_cast<unsigned>(end_ - begin_);
        const int bytes = there ? 16 : 0;
#pragma unroll
        for (int c = 0; c < kChunksOfLane; ++c) {
          copy(row, lane + c * kLanes, reinterpret_cast<const void*>(place + c * kLanes * 16),
               bytes);
        }
      }
    }
  }

 private:
  __device__ __forceinline__ static int here(int number) {
    return kSpares ? not_kept(number) : number;
  }
  static constexpr int kStep = std::max(1, kRows / kPageKeys);  // pages from an entry to the next
  static constexpr int kEntries = kKeys / kPageKeys / kStep;
  static constexpr int kPassesOfEntry = kKeys / kRows / kEntries;
  static_assert(kLanes * kRows <= kThreads && kChunksOfLane * kLanes == kChunks &&
                kEntries * kPassesOfEntry * kRows == kKeys);

  const std::int32_t* table_;
  std::uint32_t table_row_, page_bytes_, token_bytes_;
  FastDivide page_keys_;
  int row_, lane_, begin_, end_;
  std::uintptr_t keys_;                               // of this thread's row and chunk in page 0
  std::uint32_t page_[kEntries], in_page_[kEntries];  // of the tile looked up
};

}  // namespace quire::cuda
