#pragma once
// Products with a weight of any format; what linear layers and experts share.

#include <cstddef>
#include <cstdint>

#include "backend/ops.h"
#include "cpu/context.h"

namespace quire::cpu {

// A product's weight: rows of a plain matrix, or of packed ones that are unpacked block by block.
struct Matrix {
  const std::byte* data = nullptr;
  const void* scales = nullptr;
  WeightFormat format = WeightFormat::plain;
  Float type = Float::f32;  // plain: of data
  std::int64_t stride = 0;  // plain: elements between rows
  std::int64_t k = 0;
  std::int64_t scale_stride = 0;  // fp8_blocks: floats between rows of scales
};

Matrix matrix_of(TensorView weight);
Matrix matrix_of(const Weight& weight, std::int64_t expert);

// The type that both sides are multiplied in.
Float product_type(const Context& on, DType x, const Matrix& weight);
// Columns of a task whose input has this many rows.
std::int64_t task_columns(const Context& on, Float type, std::int64_t rows);
// Rows [m_begin, m_end) × columns [n_begin, n_end), by the calling thread.
void product(const Context& on, const GemmArgs& args, const Matrix& weight, Float type,
             std::int64_t m_begin, std::int64_t m_end, std::int64_t n_begin, std::int64_t n_end);

// Weights in groups: x is rounded to 8 bits by quantize_input() for weights of a format, then any of
// its rows is multiplied.
void quantize_input(Context& on, TensorView x, const GroupFormat& format);
// out [M, N]; the matrix of an expert, or the only one.
GroupGemmArgs group_args(Context& on, const Weight& weight, std::int64_t expert,
                         TensorView out, TensorView bias, std::int64_t k);
void grouped_linear(Context& on, TensorView out, TensorView x, const Weight& weight,
                    TensorView bias);

}  // namespace quire::cpu
