#pragma once
// Stand-ins for the CUB collectives that kernels use: same names and signatures, each a rendezvous
// where the last thread computes for all. Threads for which CUB leaves a result undefined get
// garbage; reusing a TempStorage without a
// __syncthreads() is an error, as it is on a GPU.

#include <vector>

#include "kernel.h"

namespace cub {

enum BlockReduceAlgorithm {
  BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY,
  BLOCK_REDUCE_RAKING,
  BLOCK_REDUCE_WARP_REDUCTIONS
};
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };
struct NullType {};

namespace emulated {

struct Sum {
  template <class T>
  T operator()(const T& a, const T& b) const {
    return static_cast<T>(a + b);
  }
};

struct TempStorage {
  unsigned last_use;  // in barriers passed; shared memory starts as 0xff…
};
EMULATION_NO_TSAN inline void use(TempStorage& storage) {
  if ((threadIdx.x | threadIdx.y | threadIdx.z) != 0) return;
  const unsigned now = emulation::barriers_passed();
  if (storage.last_use == now) emulation::fail("cub TempStorage reused without a __syncthreads()");
  storage.last_use = now;
}

template <class T, class Op>
struct Items {
  T* values;
  int count;
  const Op* op;
  bool inclusive;
  T* total;  // may be null
};

template <class T, class Op>
EMULATION_NO_TSAN void reduce_lanes(emulation::Lane** lanes, int count) {
  const auto items = [&](int i) -> const Items<T, Op>& {
    return *static_cast<const Items<T, Op>*>(lanes[i]->in);
  };
  int first = 0;
  while (lanes[first] == nullptr) ++first;
  T sum = items(first).values[0];
  for (int i = first; i < count; ++i) {
    if (lanes[i] == nullptr) continue;
    for (int k = i == first ? 1 : 0; k < items(i).count; ++k)
      sum = (*items(i).op)(sum, items(i).values[k]);
  }
  for (int i = first; i < count; ++i) {
    if (lanes[i] == nullptr) continue;
    if (i == first) {
      *static_cast<T*>(lanes[i]->out) = sum;
    } else {
      std::memset(lanes[i]->out, 0xff, sizeof(T));  // only the first thread gets it
    }
  }
}

template <class T, class Op>
EMULATION_NO_TSAN void scan_lanes(emulation::Lane** lanes, int count) {
  T sum{};
  bool any = false;
  for (int i = 0; i < count; ++i) {
    const auto& items = *static_cast<const Items<T, Op>*>(lanes[i]->in);
    for (int k = 0; k < items.count; ++k) {
      const T next = any ? (*items.op)(sum, items.values[k]) : items.values[k];
      items.values[k] = items.inclusive ? next : sum;
      sum = next;
      any = true;
    }
  }
  for (int i = 0; i < count; ++i) {
    const auto& items = *static_cast<const Items<T, Op>*>(lanes[i]->in);
    if (items.total != nullptr) *items.total = sum;
  }
}

}  // namespace emulated

template <class T, int kThreads, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int = 1,
          int = 1>
class BlockReduce {
 public:
  using TempStorage = emulated::TempStorage;
  explicit BlockReduce(TempStorage& storage) : storage_(storage) {}
  template <class Op>
  T Reduce(T value, Op op, EMULATION_SITE) {
    emulated::use(storage_);
    const emulated::Items<T, Op> items{&value, 1, &op, false, nullptr};
    T result;
    emulation::block_collective(1, emulated::reduce_lanes<T, Op>, &items, &result,
                                EMULATION_HERE("cub::BlockReduce"));
    return result;
  }
  T Sum(T value, EMULATION_SITE) { return Reduce(value, emulated::Sum{}, file_, line_); }

 private:
  TempStorage& storage_;
};

template <class T, int kThreads = 32>
class WarpReduce {
  static_assert(kThreads == 32, "whole warps only");

 public:
  using TempStorage = emulated::TempStorage;
  explicit WarpReduce(TempStorage&) {}
  template <class Op>
  T Reduce(T value, Op op, EMULATION_SITE) {
    const emulated::Items<T, Op> items{&value, 1, &op, false, nullptr};
    T result;
    emulation::warp_collective(~0u, emulated::reduce_lanes<T, Op>, &items, &result, 0, false,
                               EMULATION_HERE("cub::WarpReduce"));
    return result;
  }
  T Sum(T value, EMULATION_SITE) { return Reduce(value, emulated::Sum{}, file_, line_); }
};

template <class T, int kThreads, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int = 1, int = 1>
class BlockScan {
 public:
  using TempStorage = emulated::TempStorage;
  explicit BlockScan(TempStorage& storage) : storage_(storage) {}
  void InclusiveSum(T in, T& out, EMULATION_SITE) {
    scan(&(out = in), 1, emulated::Sum{}, true, nullptr, file_, line_);
  }
  void InclusiveSum(T in, T& out, T& total, EMULATION_SITE) {
    scan(&(out = in), 1, emulated::Sum{}, true, &total, file_, line_);
  }
  void ExclusiveSum(T in, T& out, EMULATION_SITE) {
    scan(&(out = in), 1, emulated::Sum{}, false, nullptr, file_, line_);
  }
  void ExclusiveSum(T in, T& out, T& total, EMULATION_SITE) {
    scan(&(out = in), 1, emulated::Sum{}, false, &total, file_, line_);
  }
  template <int kItems>
  void InclusiveSum(T (&in)[kItems], T (&out)[kItems], EMULATION_SITE) {
    std::copy(in, in + kItems, out);
    scan(out, kItems, emulated::Sum{}, true, nullptr, file_, line_);
  }
  template <int kItems>
  void ExclusiveSum(T (&in)[kItems], T (&out)[kItems], EMULATION_SITE) {
    std::copy(in, in + kItems, out);
    scan(out, kItems, emulated::Sum{}, false, nullptr, file_, line_);
  }

 private:
  template <class Op>
  void scan(T* values, int count, Op op, bool inclusive, T* total, const char* file_, int line_) {
    emulated::use(storage_);
    const emulated::Items<T, Op> items{values, count, &op, inclusive, total};
    emulation::block_collective(1, emulated::scan_lanes<T, Op>, &items, nullptr,
                                EMULATION_HERE("cub::BlockScan"));
  }
  TempStorage& storage_;
};

// Blocked arrangement, stable; floating-point keys in their numeric order.
template <class K, int kThreads, int kItems, class V = NullType>
class BlockRadixSort {
 public:
  using TempStorage = emulated::TempStorage;
  explicit BlockRadixSort(TempStorage& storage) : storage_(storage) {}
  void Sort(K (&keys)[kItems], V (&values)[kItems], EMULATION_SITE) {
    sort(keys, values, false, file_, line_);
  }
  void SortDescending(K (&keys)[kItems], V (&values)[kItems], EMULATION_SITE) {
    sort(keys, values, true, file_, line_);
  }

 private:
  struct Pairs {
    K* keys;
    V* values;
    bool descending;
  };
  EMULATION_NO_TSAN static void sort_lanes(emulation::Lane** lanes, int count) {
    std::vector<std::pair<K, V>> all;
    const auto pairs = [&](int i) -> const Pairs& {
      return *static_cast<const Pairs*>(lanes[i]->in);
    };
    for (int i = 0; i < count; ++i) {
      for (int k = 0; k < kItems; ++k) all.emplace_back(pairs(i).keys[k], pairs(i).values[k]);
    }
    const bool descending = pairs(0).descending;
    std::stable_sort(all.begin(), all.end(), [descending](const auto& a, const auto& b) {
      return descending ? b.first < a.first : a.first < b.first;
    });
    for (int i = 0; i < count; ++i) {
      for (int k = 0; k < kItems; ++k) {
        pairs(i).keys[k] = all[static_cast<std::size_t>(i * kItems + k)].first;
        pairs(i).values[k] = all[static_cast<std::size_t>(i * kItems + k)].second;
      }
    }
  }
  void sort(K* keys, V* values, bool descending, const char* file_, int line_) {
    emulated::use(storage_);
    const Pairs pairs{keys, values, descending};
    emulation::block_collective(1, sort_lanes, &pairs, nullptr,
                                EMULATION_HERE("cub::BlockRadixSort"));
  }
  TempStorage& storage_;
};

}  // namespace cub
