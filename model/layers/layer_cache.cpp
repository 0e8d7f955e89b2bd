#include "model/layers/layer_cache.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace quire {
namespace {

constexpr std::size_t kPageAlignment = 16;  // bytes; of the widest load of a kernel

[[noreturn]] void contradiction(const std::string& layer, const std::string& what) {
  throw Failure(ErrorCode::internal, "KV cache of " + layer + ": " + what);
}

std::size_t bytes_of(const StateTensor& state) {
  std::size_t bytes = size_of(state.dtype);
  for (const std::int64_t extent : state.shape) bytes *= static_cast<std::size_t>(extent);
  return bytes;
}

}  // namespace

std::string cache_name(std::string_view published_name) {
  const std::size_t at = published_name.rfind("layers.");
  return "model." + std::string(published_name.substr(at == std::string_view::npos ? 0 : at));
}

KvSpec token_spec(const KvSpecOptions& options) {
  KvSpec spec;
  spec.dtype = options.cache_dtype;
  if (options.cache_dtype == DType::fp8_e4m3) spec.quant = KvQuant::fp8_per_tensor;
  return spec;
}

KvSpec state_spec(const KvSpecOptions& options, const CausalConv& conv,
                  std::vector<std::int64_t> recurrent_shape, std::optional<DType> own) {
  KvSpec spec;
  spec.kind = KvKind::mamba;
  spec.dtype = options.conv_state_dtype;
  const DType recurrent =
      options.recurrent_state_dtype.value_or(own.value_or(options.conv_state_dtype));
  spec.states = {{{conv.width() - 1 + options.num_speculative_tokens, conv.channels()},
                  options.conv_state_dtype,
                  conv.own_channels()},
                 {std::move(recurrent_shape), recurrent}};
  return spec;
}

void check_pages(const LayerCache& cache, const std::string& layer,
                 std::size_t kernel_block_bytes) {
  if (cache.kernel_block_size < 1 || cache.block_size % cache.kernel_block_size != 0)
    contradiction(layer, fmt::format("blocks of {} tokens are not a whole number of the kernel's {}",
                                     cache.block_size, cache.kernel_block_size));
  const auto ratio = static_cast<std::size_t>(cache.block_size / cache.kernel_block_size);
  const std::size_t written = ratio * kernel_block_bytes;
  const std::size_t planned = unpadded_page_bytes(cache.spec);
  if (written != planned || written > cache.page_bytes)
    contradiction(layer,
                  fmt::format("the layer writes {} bytes of each block, for which the plan has {} "
                              "in pages of {}",
                              written, planned, cache.page_bytes));
  if (cache.page_bytes % (ratio * kPageAlignment) != 0)
    contradiction(layer, fmt::format("pages of {} bytes cannot be cut into {} aligned parts",
                                     cache.page_bytes, ratio));
}

void check_state(const LayerCache& cache, const std::string& layer, std::size_t index,
                 const std::vector<std::int64_t>& shape) {
  const std::size_t planned = unpadded_page_bytes(cache.spec);
  const auto& states = cache.spec.states;
  if (index < states.size() && states[index].shape.size() == shape.size() &&
      states[index].shape[0] >= shape[0] &&
      std::equal(shape.begin() + 1, shape.end(), states[index].shape.begin() + 1)) {
    if (planned <= cache.page_bytes && cache.page_bytes % size_of(states[index].dtype) == 0) return;
    contradiction(layer,
                  fmt::format("states of {} bytes in pages of {}", planned, cache.page_bytes));
  }
  contradiction(layer, fmt::format("the layer writes state {} as [{}], the plan has {}", index,
                                   fmt::join(shape, ", "),
                                   index < states.size()
                                       ? fmt::format("[{}]", fmt::join(states[index].shape, ", "))
                                       : "no such state"));
}

TensorView state_view(const LayerCache& cache, std::size_t index) {
  std::size_t offset = 0;
  for (std::size_t i = 0; i < index; ++i) offset += bytes_of(cache.spec.states[i]);
  const StateTensor& state = cache.spec.states[index];
  void* data = static_cast<std::byte*>(cache.base) + offset;
  const auto page = static_cast<std::int64_t>(cache.page_bytes / size_of(state.dtype));
  const auto& s = state.shape;
  if (s.size() == 2) {
    return TensorView(data, state.dtype, {cache.num_blocks, s[0], s[1]})
        .with_strides({page, s[1], 1});
  }
  return TensorView(data, state.dtype, {cache.num_blocks, s[0], s[1], s[2]})
      .with_strides({page, s[1] * s[2], s[2], 1});
}

}  // namespace quire
