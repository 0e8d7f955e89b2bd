#pragma once
// What a test says to the emulated cuBLASLt, and what it recorded.

#include <cublasLt.h>

#include <functional>
#include <vector>

namespace emulation {

// A product that was asked for: d [n, tokens] = aᵀ [n, k] · b [k, tokens].
struct BlasProduct {
  std::int64_t n, tokens, k;
  std::int32_t batch;
  cudaDataType_t type, out;
  bool sums_fast;
  int algorithm;  // −1: not chosen yet
};

struct Blas {
  int algorithms = 1;  // that are offered for a product, numbered in that order
  // Of these no algorithm is offered, or the one that is run is refused then or fails; optional.
  std::function<bool(const BlasProduct&)> refuses_offer, refuses_run, fails;
  std::function<double(const BlasProduct&)> microseconds;  // that it takes; optional
  int num_asked = 0, num_checked = 0;                      // for algorithms, for one
  int num_matrices = 0;                                    // descriptors that live
  std::vector<BlasProduct> runs = {};
  bool records = false;  // runs
};
Blas& blas();

}  // namespace emulation
