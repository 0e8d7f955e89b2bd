// What cuBLASLt documents for cublasLtMatmul (cuBLAS 13.1, sections 3.1.4 and 3.4.17), on any
// machine: dtypes of the operands, of the output and of the bias, leading dimensions, alignment.
// And what is done where it has no algorithm all the same: the kernel of the experts' products
// takes any shape.

#include "cuda/gemm.h"

#include "base/error.h"
#include "cuda/fp8_scratch.h"
#include "cuda/kernels/launchers.h"

namespace quire::cuda {
namespace {

std::string shape_of(const TensorView& tensor) {
  std::string text(name_of(tensor.dtype()));
  for (int i = 0; i < tensor.rank(); ++i) {
    text += (i == 0 ? " [" : ", ") + std::to_string(tensor.extent(i));
  }
  return text + "]";
}

// Of one product, for messages.
class Rules {
 public:
  Rules(const TensorView& out, const TensorView& x, const TensorView& weight)
      : out_(out), x_(x), weight_(weight) {}

  void need(bool holds, const char* rule) const {
    if (holds) return;
    throw Failure(ErrorCode::internal, shape_of(out_) + " = " + shape_of(x_) + " · " +
                                           shape_of(weight_) + "ᵀ: cuBLASLt wants " + rule);
  }

  // Elements of a row are adjacent, rows do not overlap, and all are where their dtype may be.
  void matrix(const TensorView& tensor) const {
    const int last = tensor.rank() - 1;
    need(tensor.extent(last) == 1 || tensor.stride(last) == 1, "rows of adjacent elements");
    need(reinterpret_cast<std::uintptr_t>(tensor.data()) % size_of(tensor.dtype()) == 0,
         "aligned elements");
  }
  void leading(std::int64_t leading, std::int64_t columns) const {
    need(leading >= columns, "a leading dimension of a row at least");
  }
  void aligned(const TensorView& tensor) const {
    bool holds = reinterpret_cast<std::uintptr_t>(tensor.data()) % 16 == 0;
    for (int i = 0; i + 1 < tensor.rank(); ++i) {
      holds =
          holds && tensor.stride(i) * static_cast<std::int64_t>(size_of(tensor.dtype())) % 16 == 0;
    }
    need(holds, "fp8 operands and their outputs and scales at multiples of 16 bytes");
  }
  void bias(const TensorView& bias, DType dtype) const {
    if (bias.empty()) return;
    need(bias.dtype() == dtype, "another dtype of the bias");
    need(bias.rank() == 1 && bias.stride(0) == 1 && bias.extent(0) == out_.extent(1),
         "a dense bias as long as a row of the output");
  }
  void plain_dtypes() const {
    const DType dtype = weight_.dtype();
    need(dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f32,
         "bf16, f16 or f32 operands");
    need(x_.dtype() == dtype, "operands of one dtype");
    need(out_.dtype() == dtype || out_.dtype() == DType::f32, "an output as its operands, or f32");
  }

 private:
  const TensorView &out_, &x_, &weight_;
};

void check_fp8_scales(const Rules& rules, const Fp8Product& p) {
  const TensorView &scales = p.weight.scales, &x_scales = p.x_scales;
  const std::int64_t tokens = p.x.extent(0), n = p.weight.data.extent(0);
  rules.need(scales.dtype() == DType::f32 && x_scales.dtype() == DType::f32, "f32 scales");
  rules.need(x_scales.contiguous(), "dense scales of x");
  rules.aligned(scales);
  rules.aligned(TensorView(x_scales.data(), DType::f32, {x_scales.numel()}));
  if (p.weight.format == WeightFormat::fp8_rows) {
    rules.need(scales.contiguous() && scales.numel() == n, "a scale for each row of the weight");
    return rules.need(x_scales.numel() == tokens, "a scale for each row of x");
  }
  const std::int64_t depth = (p.x.extent(1) + kFp8Block - 1) / kFp8Block;
  const std::int64_t row =
      (depth + kBlockScaleAlignment - 1) / kBlockScaleAlignment * kBlockScaleAlignment;
  rules.need(tokens % kBlockScaleAlignment == 0, "a multiple of 4 rows of x beside block scales");
  rules.need(x_scales.rank() == 2 && x_scales.extent(0) == depth && x_scales.extent(1) == tokens,
             "scales [blocks of K, rows] of x");
  rules.need(scales.rank() == 2 && scales.extent(0) == (n + kFp8Block - 1) / kFp8Block &&
                 scales.extent(1) == depth && scales.stride(0) == row,
             "scales [blocks of N, blocks of K] of the weight, rows padded to 4");
}

// One of a batch, which dimension `dim` counts.
TensorView matrix_of(const TensorView& batch, int dim, std::int64_t index) {
  const int rows = 1 - dim;
  return TensorView(batch.narrow(dim, index, index + 1).data(), batch.dtype(),
                    {batch.extent(rows), batch.extent(2)})
      .with_strides({batch.stride(rows), batch.stride(2)});
}

}  // namespace

void Gemm::linear(TensorView out, TensorView x, TensorView weight, TensorView bias,
                  StreamRef stream) {
  if (out.numel() == 0) return;
  const Rules rules(out, x, weight);
  rules.plain_dtypes();
  rules.bias(bias, out.dtype());
  for (const TensorView* tensor : {&out, &x, &weight}) {
    rules.matrix(*tensor);
    rules.leading(tensor->stride(0), tensor->extent(1));
  }
  if (multiply(out, x, weight, bias, stream)) return;
  quantized_linear(out, x, {.data = weight, .scales = {}}, bias, stream);
}

void Gemm::head_linear(TensorView out, TensorView x, TensorView weight, StreamRef stream) {
  if (out.numel() == 0) return;
  const Rules rules(out, x, weight);
  rules.plain_dtypes();
  for (const TensorView* tensor : {&out, &x, &weight}) rules.matrix(*tensor);
  rules.leading(out.stride(0), out.extent(2));
  rules.leading(x.stride(0), x.extent(2));
  rules.leading(weight.stride(1), weight.extent(2));
  rules.need(out.stride(1) >= out.extent(2), "outputs of a batch that do not overlap");
  if (multiply_heads(out, x, weight, stream)) return;
  for (std::int64_t h = 0; h < weight.extent(0); ++h) {
    const Weight of_head{.data = matrix_of(weight, 0, h), .scales = {}};
    quantized_linear(matrix_of(out, 1, h), matrix_of(x, 1, h), of_head, {}, stream);
  }
}

bool Gemm::fp8_linear(const Fp8Product& p, StreamRef stream) {
  if (p.out.numel() == 0) return true;
  const TensorView& weight = p.weight.data;
  const Rules rules(p.out, p.x, weight);
  rules.need(has_fp8(), "compute capability 9.0 and cuBLAS 12.9 for fp8 with vectors of scales");
  rules.need(p.x.dtype() == DType::fp8_e4m3 && weight.dtype() == DType::fp8_e4m3,
             "operands in e4m3");
  const DType out = p.out.dtype();
  rules.need(out == DType::bf16 || out == DType::f16 || out == DType::f32,
             "a bf16, f16 or f32 output of fp8");
  rules.bias(p.bias, out == DType::f16 ? DType::f16 : DType::bf16);
  for (const TensorView* tensor : {&p.out, &p.x, &weight}) {
    rules.matrix(*tensor);
    rules.leading(tensor->stride(0), tensor->extent(1));
    rules.aligned(*tensor);
  }
  rules.need(p.x.extent(1) % kFp8Alignment == 0 && weight.extent(0) % kFp8Alignment == 0,
             "multiples of 16 rows and columns of an fp8 weight");
  check_fp8_scales(rules, p);
  return multiply_fp8(p, stream);
}

}  // namespace quire::cuda
