#pragma once
// A published tensor on its way into a device tensor: what arrives of it, and its numbers in another
// order and another type.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <vector>

#include "backend/dtype.h"
#include "model/loader_threads.h"
#include "model/weights.h"

namespace quire {

std::int64_t product(const Shape& shape);

// Rows and columns of each of the source's matrices.
struct Matrix {
  std::int64_t rows, cols;
};

Matrix matrix_of(const Source& source);

// Of each row that arrives, where it is not transposed.
Range columns_of(const Source& source);
// Of each column that arrives, where it is transposed.
Range depth_of(const Source& source);
Range matrices_of(const Source& source);
// The taken columns, whole groups of them, of a row: all as they are, or some in `own`.
const CodeRow& columns_of(const CodeRow& row, const Range& taken, CodeRow& own);

// Elements that arrive.
std::int64_t delivered(const Source& source);

// A config.json can ask for tensors that cannot be: throws Failure.
void check_extents(const Source& source);

// Larger values than float16 has became infinite on the way to it: throws Failure. `out` [delivered].
void refuse_infinities(const Source& source, const std::byte* out);

// All of it, or neighbouring rows of its one matrix: then they begin at row picked_row().
bool as_published(const Source& source);
std::int64_t picked_row(const Source& source);

inline bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

template <class To, class From>
To convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else {
    return static_cast<To>(static_cast<float>(value));
  }
}

template <class To, class From>
void convert_row(To* out, const From* in, std::int64_t n) {
  if constexpr (std::is_same_v<To, From>) {
    std::memcpy(out, in, static_cast<std::size_t>(n) * sizeof(To));
  } else {
    for (std::int64_t i = 0; i < n; ++i) out[i] = convert<To>(in[i]);
  }
}

// `in` is all of the source, `out` what arrives of it.
template <class To, class From>
void deliver(const Source& source, To* out, const From* in) {
  constexpr std::int64_t kElementsOfAPiece = 1 << 18;  // worth a thread
  const auto [rows, cols] = matrix_of(source);
  if (as_published(source)) {
    const std::int64_t all = delivered(source);
    in += picked_row(source) * cols;
    return for_rows_in_parallel(all, kElementsOfAPiece, [&](std::int64_t begin, std::int64_t end) {
      convert_row(out + begin, in + begin, end - begin);
    });
  }
  std::vector<std::int64_t> pick = source.pick;
  if (pick.empty()) {
    pick.resize(static_cast<std::size_t>(source.transposed ? cols : rows));
    std::iota(pick.begin(), pick.end(), 0);
  }
  const Range taken = columns_of(source), depth = depth_of(source), some = matrices_of(source);
  in += some.begin * rows * cols;
  for (std::int64_t b = some.begin; b < some.end; ++b, in += rows * cols) {
    for (const std::int64_t at : pick) {
      if (source.transposed) {
        for (std::int64_t r = depth.begin; r < depth.end; ++r) *out++ = convert<To>(in[r * cols + at]);
      } else {
        convert_row(out, in + at * cols + taken.begin, taken.size());
        out += taken.size();
      }
    }
  }
}

}  // namespace quire
