// Matrix products: the type they run in, their input in that type, and their cut into tasks.

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <memory>

#include "cpu/operators.h"
#include "cpu/product.h"

namespace quire::cpu {
namespace {

constexpr std::int64_t kPackedTaskColumns = 512, kFewRows = 8;
constexpr std::int64_t kTaskColumns = 40;  // a multiple of every tile's columns
constexpr std::int64_t kTaskRows = 60;     // of x, where columns alone are too few tasks
constexpr std::int64_t kMacsWorthSharing = 1 << 16;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::size_t bytes_of(Float type) { return type == Float::f32 ? 4 : 2; }

// x itself where it has the type, else a copy.
TensorView product_input(Context& on, TensorView x, Float type) {
  if (float_of(x.dtype()) == type) return x;
  const DType dtype = type == Float::f32 ? DType::f32 : DType::bf16;
  const std::size_t bytes = static_cast<std::size_t>(x.numel()) * size_of(dtype);
  if (on.product_input.size() < bytes) on.product_input.resize(bytes);
  const bool heads = x.rank() == 3;
  const TensorView copy =
      heads ? TensorView(on.product_input.data(), dtype, {x.extent(0), x.extent(1), x.extent(2)})
            : TensorView(on.product_input.data(), dtype, {x.extent(0), x.extent(1)});
  const Rows to = rows_of(copy), from = rows_of(x);
  const std::int64_t width = x.extent(x.rank() - 1);
  on.for_rows(x.numel() / width, width, [&](std::int64_t begin, std::int64_t end) {
    on.kernels.copy_rows(to, from, width, begin, end);
  });
  return copy;
}

void unpack(const Context& on, const Matrix& weight, std::int64_t begin, std::int64_t end,
            Float type, void* out) {
  const std::int64_t k = weight.k;
  if (weight.format == WeightFormat::mxfp4) {
    return on.kernels.unpack_mxfp4(
        reinterpret_cast<const std::uint8_t*>(weight.data) + begin * k / 2,
        static_cast<const std::uint8_t*>(weight.scales) + begin * k / 32, (end - begin) * k / 32,
        type, out);
  }
  const auto* codes = reinterpret_cast<const E4m3*>(weight.data) + begin * k;
  if (weight.format == WeightFormat::fp8_rows) {  // the product applies the scales
    return on.kernels.unpack_fp8(codes, (end - begin) * k, 1.f, type, out);
  }
  auto* to = static_cast<float*>(out);
  for (std::int64_t n = begin; n < end; ++n) {
    const auto* scales =
        static_cast<const float*>(weight.scales) + n / kFp8Block * weight.scale_stride;
    for (std::int64_t i = 0; i < k; i += kFp8Block) {
      const std::int64_t count = std::min<std::int64_t>(kFp8Block, k - i);
      on.kernels.unpack_fp8(codes, count, scales[i / kFp8Block], type, to);
      codes += count;
      to += count;
    }
  }
}

}  // namespace

void* thread_scratch(std::size_t bytes) {
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  thread_local std::unique_ptr<void, Free> memory;
  thread_local std::size_t capacity = 0;
  if (bytes > capacity) {
    capacity = (bytes + 4095) / 4096 * 4096;
    memory.reset();
    memory.reset(std::aligned_alloc(64, capacity));
    if (memory == nullptr) throw std::bad_alloc();
  }
  return memory.get();
}

Matrix matrix_of(TensorView weight) {
  assert(weight.rank() == 2 && (weight.stride(1) == 1 || weight.extent(1) == 1));
  return {static_cast<const std::byte*>(weight.data()),
          nullptr,
          WeightFormat::plain,
          float_of(weight.dtype()),
          weight.stride(0),
          weight.extent(1),
          0};
}

Matrix matrix_of(const Weight& weight, std::int64_t expert) {
  const auto matrix_rank = weight.format == WeightFormat::fp8_rows ? 1 : 2;
  const auto at = [expert](TensorView v, int rank) {
    return static_cast<const std::byte*>(v.rank() > rank ? v.rows(expert, expert + 1).data()
                                                         : v.data());
  };
  const TensorView &data = weight.data, &scales = weight.scales;
  const std::int64_t columns = data.extent(data.rank() - 1);
  if (weight.format == WeightFormat::plain) {
    return {at(data, 2),
            nullptr,
            WeightFormat::plain,
            float_of(data.dtype()),
            data.stride(data.rank() - 2),
            columns,
            0};
  }
  assert(data.contiguous());
  const bool mxfp4 = weight.format == WeightFormat::mxfp4;
  assert(!mxfp4 || (scales.contiguous() && columns == 16 * scales.extent(scales.rank() - 1)));
  return {.data = at(data, 2),
          .scales = at(scales, matrix_rank),
          .format = weight.format,
          .type = Float::bf16,
          .k = mxfp4 ? columns * 2 : columns,
          .scale_stride = scales.stride(scales.rank() - matrix_rank)};
}

// Numbers in blocks are multiplied by their scales as floats before the sum.
Float product_type(const Context& on, DType x, const Matrix& weight) {
  const bool bf16 = on.kernels.gemm_bf16 != nullptr && x == DType::bf16 &&
                    weight.type == Float::bf16 && weight.format != WeightFormat::fp8_blocks;
  return bf16 ? Float::bf16 : Float::f32;
}

void product(const Context& on, const GemmArgs& args, const Matrix& weight, Float type,
             std::int64_t m_begin, std::int64_t m_end, std::int64_t n_begin, std::int64_t n_end) {
  const bool bf16 = type == Float::bf16, packs = bf16 && on.kernels.packs_bf16;
  const bool rows = weight.format == WeightFormat::fp8_rows;
  // Few rows would use an unpacked weight hardly more than once: it is unpacked in registers.
  const bool in_registers = rows && !packs && m_end - m_begin <= kFewRows;
  const bool unpacks = weight.format != WeightFormat::plain && !in_registers;
  const std::int64_t columns = n_end - n_begin, k = weight.k;
  constexpr std::int64_t kSums = kDeepColumns * 64;
  const auto gemm_bytes = static_cast<std::size_t>(
      packs ? ceil_div(k, 32) * 32 * 64 : kDeepRows * (kSums + 5 * k + 2 * kDeepBytes));
  const std::size_t unpack_bytes =
      unpacks ? static_cast<std::size_t>(columns * k) * bytes_of(type) : 0;
  auto* const scratch = static_cast<std::byte*>(thread_scratch(gemm_bytes + unpack_bytes));
  const auto gemm = bf16 ? on.kernels.gemm_bf16 : on.kernels.gemm_f32;
  GemmArgs part = args;
  if (rows) part.scale = static_cast<const float*>(weight.scales);
  if (in_registers) {
    part.w_type = Float::e4m3;
    part.w_stride = k;
  }
  if (!unpacks) return gemm(part, m_begin, m_end, n_begin, n_end, scratch);

  void* const unpacked = scratch + gemm_bytes;
  unpack(on, weight, n_begin, n_end, type, unpacked);
  part.w = unpacked;
  part.w_type = type;
  part.w_stride = k;
  part.out = static_cast<std::byte*>(args.out) +
             n_begin * static_cast<std::int64_t>(bytes_of(args.out_type));
  if (args.bias != nullptr) {
    part.bias = static_cast<const std::byte*>(args.bias) +
                n_begin * static_cast<std::int64_t>(bytes_of(args.bias_type));
  }
  if (rows) part.scale += n_begin;
  gemm(part, m_begin, m_end, 0, columns, scratch);
}

// A kernel that packs its rows first earns that back over many columns.
std::int64_t task_columns(const Context& on, Float type, std::int64_t rows) {
  const bool packs = type == Float::bf16 && on.kernels.packs_bf16;
  return packs && rows > kFewRows ? kPackedTaskColumns : kTaskColumns;
}

namespace {

void linear_into(Context& on, TensorView out, TensorView x, const Matrix& weight, std::int64_t n,
                 TensorView bias) {
  const std::int64_t m = x.extent(0);
  assert(x.extent(1) == weight.k && out.extent(0) == m && out.extent(1) == n);
  assert(bias.empty() || bias.numel() == n);
  if (m == 0) return;
  const Float type = product_type(on, x.dtype(), weight);
  const TensorView input = product_input(on, x, type);
  const GemmArgs args{.w = weight.data,
                      .w_type = weight.type,
                      .w_stride = weight.stride,
                      .x = input.data(),
                      .x_stride = input.stride(0),
                      .out = out.data(),
                      .out_type = float_of(out.dtype()),
                      .out_stride = out.stride(0),
                      .bias = bias.data(),
                      .bias_type = bias.empty() ? Float::f32 : float_of(bias.dtype()),
                      .k = weight.k};
  const std::int64_t width = task_columns(on, type, m), n_tasks = ceil_div(n, width);
  const std::int64_t wanted = ceil_div(8 * on.pool.threads(), n_tasks);
  const std::int64_t m_tasks = std::clamp<std::int64_t>(wanted, 1, ceil_div(m, kTaskRows));
  const std::int64_t macs = ceil_div(m, m_tasks) * width * weight.k;
  on.pool.parallel_for(
      n_tasks * m_tasks, kMacsWorthSharing / (macs + 1) + 1,
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end;) {
          // Neighbours that share their rows of x run as one.
          const std::int64_t part = t / n_tasks, stop = std::min(end, (part + 1) * n_tasks);
          const std::int64_t n_begin = t % n_tasks * width;
          const std::int64_t n_end =
              std::min(n, n_begin + (weight.format == WeightFormat::plain ? stop - t : 1) * width);
          product(on, args, weight, type, m * part / m_tasks, m * (part + 1) / m_tasks, n_begin,
                  n_end);
          t += ceil_div(n_end - n_begin, width);
        }
      });
}

}  // namespace

void linear(Context& on, TensorView out, TensorView x, TensorView weight, TensorView bias) {
  linear_into(on, out, x, matrix_of(weight), weight.extent(0), bias);
}

void quantized_linear(Context& on, TensorView out, TensorView x, const Weight& weight,
                      TensorView bias) {
  if (weight.format == WeightFormat::groups) return grouped_linear(on, out, x, weight, bias);
  linear_into(on, out, x, matrix_of(weight, 0), weight.data.extent(0), bias);
}

void head_linear(Context& on, TensorView out, TensorView x, TensorView weight) {
  assert(x.rank() == 3 && out.rank() == 3 && weight.rank() == 3);
  const std::int64_t m = x.extent(0), n = weight.extent(1), k = weight.extent(2);
  assert(out.extent(2) == n && x.extent(2) == k && x.extent(1) == weight.extent(0));
  const auto head_weight = [&](std::int64_t h) {
    return matrix_of(TensorView(weight.rows(h, h + 1).data(), weight.dtype(), {n, k})
                         .with_strides({weight.stride(1), weight.stride(2)}));
  };
  if (m == 0) return;
  const Float type = product_type(on, x.dtype(), head_weight(0));
  const TensorView input = product_input(on, x, type);
  const std::int64_t macs = m * n * k;
  on.pool.parallel_for(weight.extent(0), kMacsWorthSharing / (macs + 1) + 1,
                       [&](std::int64_t begin, std::int64_t end) {
                         for (std::int64_t h = begin; h < end; ++h) {
                           const Matrix matrix = head_weight(h);
                           const GemmArgs args{.w = matrix.data,
                                               .w_type = matrix.type,
                                               .w_stride = matrix.stride,
                                               .x = input.narrow(1, h, h + 1).data(),
                                               .x_stride = input.stride(0),
                                               .out = out.narrow(1, h, h + 1).data(),
                                               .out_type = float_of(out.dtype()),
                                               .out_stride = out.stride(0),
                                               .bias = nullptr,
                                               .bias_type = Float::f32,
                                               .k = k};
                           product(on, args, matrix, type, 0, m, 0, n);
                         }
                       });
}

}  // namespace quire::cpu
