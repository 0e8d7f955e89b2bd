#include "model/layers/fp8_matrix.h"

#include <algorithm>

namespace quire {

namespace {

constexpr std::int64_t kScaleRow = 4;  // floats: a row of block scales is made of so many at a time

std::int64_t rounded_up(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }

// "q_proj" of "model.layers.0.self_attn.q_proj.weight".
std::string last_part(const std::string& name) {
  const std::string module = name.substr(0, name.rfind('.'));
  return module.substr(module.rfind('.') + 1);
}

// Rows of `columns` numbers, padded with zeros.
std::vector<float> padded(const std::vector<Fp8Scales>& scales, std::int64_t columns,
                          std::int64_t stride) {
  std::vector<float> out;
  for (const Fp8Scales& part : scales) {
    for (std::size_t at = 0; at < part.values.size(); at += static_cast<std::size_t>(columns)) {
      const auto row = part.values.begin() + static_cast<std::ptrdiff_t>(at);
      out.insert(out.end(), row, row + columns);
      out.resize(out.size() + static_cast<std::size_t>(stride - columns));
    }
  }
  return out;
}

// [.., rows of scales] or, of blocks, [.., rows of scales, columns].
TensorView put_scales(Weights& weights, const Shape& shape, const std::vector<Fp8Scales>& scales) {
  const bool blocks = scales.front().format == WeightFormat::fp8_blocks;
  const std::int64_t columns = scales.front().columns;
  const std::int64_t stride = blocks ? rounded_up(columns, kScaleRow) : 1;
  const std::vector<float> values = padded(scales, columns, stride);
  Shape to(shape.begin(), shape.end() - 2);
  std::int64_t batch = 1;
  for (const std::int64_t n : to) batch *= n;
  to.push_back(static_cast<std::int64_t>(values.size()) / (batch * stride));
  if (blocks) to.push_back(stride);
  const TensorView all = weights.put(values.data(), to, DType::f32);
  return blocks ? all.narrow(all.rank() - 1, 0, columns) : all;
}

}  // namespace

std::optional<Fp8Scales> fp8_scales(Weights& weights, const std::string& name, const Shape& shape,
                                    const std::vector<std::int64_t>& pick) {
  if (!weights.fp8().has(name)) return {};
  Fp8Scales scales = weights.fp8().scales(name, shape[0], shape[1]);
  if (pick.empty()) return scales;
  auto picked = scales.of_rows(pick);
  if (!picked) {
    weights.note(last_part(name) + " is kept as " + std::string(name_of(weights.dtype())) +
                 ": its rows change places within fp8 blocks");
  }
  return picked;
}

Weight load_fp8(Weights& weights, const std::vector<Source>& sources, const Shape& shape,
                const std::vector<Fp8Scales>& scales) {
  Weight weight{.data = weights.load(sources, shape, DType::fp8_e4m3),
                .scales = put_scales(weights, shape, scales),
                .format = scales.front().format};
  std::optional<float> input;
  for (const Source& source : sources) {
    // Products share their input: the largest scale clips none of it.
    if (const auto own = weights.fp8().input_scale(source.name)) {
      input = std::max(input.value_or(*own), *own);
    }
  }
  if (input) weight.input_scale = weights.put(&*input, {1}, DType::f32);
  return weight;
}

}  // namespace quire
