#pragma once
// Views of memory that somebody else owns: TensorView knows its dtype at run time, View<T, Rank> at
// compile time.

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "backend/dtype.h"

namespace quire {

// What a kernel sees: plain data, passed by value. Strides are in elements.
template <class T, int Rank>
struct View {
  T* data = nullptr;
  std::int64_t extent[Rank] = {};
  std::int64_t stride[Rank] = {};

  template <class... Index>
#ifdef __CUDACC__
  __host__ __device__
#endif
      T&
      operator()(Index... index) const {
    static_assert(sizeof...(Index) == Rank);
    const std::int64_t at[] = {static_cast<std::int64_t>(index)...};
    std::int64_t offset = 0;
    for (int i = 0; i < Rank; ++i) offset += at[i] * stride[i];
    return data[offset];
  }
};

class TensorView {
 public:
  static constexpr int kMaxRank = 5;

  TensorView() = default;
  // Dense, row-major.
  TensorView(void* data, DType dtype, std::initializer_list<std::int64_t> extents)
      : data_(data), dtype_(dtype), rank_(static_cast<int>(extents.size())) {
    assert(extents.size() <= kMaxRank);
    int i = 0;
    for (const std::int64_t e : extents) extent_[i++] = e;
    std::int64_t step = 1;
    for (i = rank_ - 1; i >= 0; --i) {
      stride_[i] = step;
      step *= extent_[i];
    }
  }

  bool empty() const { return data_ == nullptr; }  // an absent optional input
  void* data() const { return data_; }
  DType dtype() const { return dtype_; }
  int rank() const { return rank_; }
  std::int64_t extent(int i) const { return extent_[i]; }
  std::int64_t stride(int i) const { return stride_[i]; }  // elements
  std::int64_t numel() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= extent_[i];
    return n;
  }
  std::size_t bytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype_); }

  bool contiguous() const {
    std::int64_t step = 1;
    for (int i = rank_ - 1; i >= 0; --i) {
      if (extent_[i] != 1 && stride_[i] != step) return false;
      step *= extent_[i];
    }
    return true;
  }

  // Rows [begin, end) of the first dimension.
  TensorView rows(std::int64_t begin, std::int64_t end) const {
    assert(0 <= begin && begin <= end && end <= extent_[0]);
    TensorView v = *this;
    v.data_ = static_cast<std::byte*>(data_) +
              begin * stride_[0] * static_cast<std::int64_t>(size_of(dtype_));
    v.extent_[0] = end - begin;
    return v;
  }
  // [begin, end) of dimension dim; a strided view.
  TensorView narrow(int dim, std::int64_t begin, std::int64_t end) const {
    assert(0 <= begin && begin <= end && end <= extent_[dim]);
    TensorView v = *this;
    v.data_ = static_cast<std::byte*>(data_) +
              begin * stride_[dim] * static_cast<std::int64_t>(size_of(dtype_));
    v.extent_[dim] = end - begin;
    return v;
  }
  // The last dimension n split into [n / inner, inner]; outer dimensions may be strided.
  TensorView split_last(std::int64_t inner) const {
    assert(rank_ < kMaxRank && extent_[rank_ - 1] % inner == 0 && stride_[rank_ - 1] == 1);
    TensorView v = *this;
    v.rank_ = rank_ + 1;
    v.extent_[rank_ - 1] = extent_[rank_ - 1] / inner;
    v.stride_[rank_ - 1] = inner;
    v.extent_[rank_] = inner;
    v.stride_[rank_] = 1;
    return v;
  }
  TensorView reshape(std::initializer_list<std::int64_t> extents) const {
    assert(contiguous());
    TensorView v(data_, dtype_, extents);
    assert(v.numel() == numel());
    return v;
  }
  TensorView with_strides(std::initializer_list<std::int64_t> strides) const {
    assert(static_cast<int>(strides.size()) == rank_);
    TensorView v = *this;
    int i = 0;
    for (const std::int64_t s : strides) v.stride_[i++] = s;
    return v;
  }

  template <class T, int Rank>
  View<T, Rank> as() const {
    assert(rank_ == Rank && dtype_ == dtype_of<T>);
    View<T, Rank> v;
    v.data = static_cast<T*>(data_);
    for (int i = 0; i < Rank; ++i) {
      v.extent[i] = extent_[i];
      v.stride[i] = stride_[i];
    }
    return v;
  }

 private:
  void* data_ = nullptr;
  DType dtype_ = DType::f32;
  int rank_ = 0;
  std::array<std::int64_t, kMaxRank> extent_{};
  std::array<std::int64_t, kMaxRank> stride_{};
};

}  // namespace quire
