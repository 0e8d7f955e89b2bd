#include "engine/kv_transfer/content/geometry.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace quire {
namespace {

std::string dtypes_of(const KvSpec& spec) {
  if (spec.kind != KvKind::mamba) return std::string(name_of(spec.dtype));
  std::string names;
  for (const StateTensor& state : spec.states) {
    names += names.empty() ? "" : "+";
    names += name_of(state.dtype);
  }
  return names;
}

template <class T>
std::string differs(const std::string& layer, const char* field, const T& ours, const T& theirs) {
  return fmt::format("{} of layer {} is {} here and {} there", field, layer, ours, theirs);
}

std::string shape_of(const KvStateGeometry& state) {
  return fmt::format("{} {}×{}+{}×{}×{}", state.form == StateForm::mamba2 ? "mamba2" : "delta_net",
                     state.conv_rows, state.conv_channels, state.heads, state.head_rows,
                     state.head_columns);
}

KvStateGeometry state_geometry(const KvSpec& spec) {
  const auto number = [](std::int64_t extent) { return static_cast<int>(extent); };
  if (spec.states.size() != 2 || spec.states[0].shape.size() != 2 ||
      spec.states[1].shape.size() != 3)
    return {};
  const StateTensor &conv = spec.states[0], &recurrent = spec.states[1];
  return {.form = spec.state_form,
          .conv_rows = number(conv.shape[0]),
          .conv_channels = number(conv.shape[1]),
          .conv_element_bytes = static_cast<int>(size_of(conv.dtype)),
          .heads = number(recurrent.shape[0]),
          .head_rows = number(recurrent.shape[1]),
          .head_columns = number(recurrent.shape[2]),
          .element_bytes = static_cast<int>(size_of(recurrent.dtype))};
}

std::string difference(const KvLayerGeometry& ours, const KvLayerGeometry& theirs) {
  const std::string& at = ours.name;
  if (ours.name != theirs.name)
    return fmt::format("layer {} here is {} there", ours.name, theirs.name);
  if (ours.kind != theirs.kind)
    return differs(at, "kind", kind_name(ours.kind), kind_name(theirs.kind));
  if (ours.dtype != theirs.dtype) return differs(at, "kv_cache_dtype", ours.dtype, theirs.dtype);
  if (ours.heads != theirs.heads) return differs(at, "num_kv_heads", ours.heads, theirs.heads);
  if (ours.head_size != theirs.head_size)
    return differs(at, "head_size", ours.head_size, theirs.head_size);
  if (ours.planes != theirs.planes) return differs(at, "planes", ours.planes, theirs.planes);
  if (ours.row_bytes != theirs.row_bytes)
    return differs(at, "row_bytes", ours.row_bytes, theirs.row_bytes);
  if (ours.window != theirs.window)
    return differs(at, "sliding_window", ours.window, theirs.window);
  if (ours.chunk != theirs.chunk)
    return differs(at, "attention_chunk_size", ours.chunk, theirs.chunk);
  if (ours.key_scale != theirs.key_scale)
    return differs(at, "k_scale", ours.key_scale, theirs.key_scale);
  if (ours.value_scale != theirs.value_scale)
    return differs(at, "v_scale", ours.value_scale, theirs.value_scale);
  if (ours.state != theirs.state)
    return differs(at, "state_shape", shape_of(ours.state), shape_of(theirs.state));
  if (theirs.block_size < 1)
    return fmt::format("block_size of layer {} is {} there", at, theirs.block_size);
  return "";
}

}  // namespace

bool KvGeometry::has_states() const {
  return std::ranges::any_of(layers, &KvLayerGeometry::is_state);
}

KvLayerGeometry layer_geometry(const LayerKvSpec& layer, int block_size) {
  KvSpec token = layer.spec;
  const auto refuse = [&](const char* what) {
    throw Failure(
        Error{ErrorCode::unsupported,
              fmt::format("KvTransferConfig::role: layer {} keeps {}, which cannot be transferred",
                          layer.layer, what),
              "KvTransferConfig::role"});
  };
  if (token.compress_ratio != 1 || token.mla_format != MlaFormat::plain) refuse("packed latents");
  if (token.head_size_v != 0 && token.head_size_v != token.head_size)
    refuse("keys and values of different sizes");
  if (token.quant != KvQuant::none && token.quant != KvQuant::fp8_per_tensor)
    refuse("scales beside each token");
  if (!is_attention(token.kind) && token.kind != KvKind::mamba) refuse("neither tokens nor states");
  KvLayerGeometry geometry{.name = layer.layer,
                           .kind = token.kind,
                           .dtype = dtypes_of(token),
                           .window = token.kind == KvKind::full ? 0 : token.sliding_window,
                           .chunk = token.kind == KvKind::full ? 0 : token.attention_chunk_size,
                           .block_size = block_size};
  if (geometry.is_state()) {
    geometry.row_bytes = static_cast<std::int64_t>(unpadded_page_bytes(token));
    geometry.state = state_geometry(token);
    return geometry;
  }
  geometry.key_scale = layer.key_scale;
  geometry.value_scale = layer.value_scale;
  token.block_size = 1;
  const bool latent = token.kind == KvKind::mla || token.kind == KvKind::sliding_window_mla;
  geometry.planes = latent ? 1 : 2;
  geometry.heads = token.num_kv_heads;
  geometry.head_size = token.head_size;
  geometry.row_bytes = static_cast<std::int64_t>(unpadded_page_bytes(token)) / geometry.planes;
  return geometry;
}

std::string geometry_difference(const KvGeometry& ours, const KvGeometry& theirs) {
  if (ours.model_fingerprint != theirs.model_fingerprint)
    return fmt::format(
        "model_fingerprint is {} here and {} there: other weights, another dtype, or rope "
        "scaling for another longest context",
        ours.model_fingerprint, theirs.model_fingerprint);
  if (ours.draft_fingerprint != theirs.draft_fingerprint) {
    const auto named = [](const std::string& draft) { return draft.empty() ? "none" : draft; };
    return fmt::format(
        "draft_fingerprint is {} here and {} there: both sides need the same draft model",
        named(ours.draft_fingerprint), named(theirs.draft_fingerprint));
  }
  if (ours.layers.size() != theirs.layers.size())
    return fmt::format("{} layers keep something here and {} there", ours.layers.size(),
                       theirs.layers.size());
  for (std::size_t i = 0; i < ours.layers.size(); ++i) {
    std::string found = difference(ours.layers[i], theirs.layers[i]);
    if (!found.empty()) return found;
  }
  return "";
}

}  // namespace quire
