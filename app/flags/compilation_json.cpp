#include "app/flags/compilation_json.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/json.h"

namespace quire {
namespace {

// Of vLLM 0.33 and before it: how code is compiled and cached, and which pieces of a step are
// captured.
constexpr std::string_view kWithoutEffect[] = {"backend",
                                               "bs_to_padded_graph_size",
                                               "cache_dir",
                                               "compile_cache_save_format",
                                               "compile_mm_encoder",
                                               "compile_ranges_endpoints",
                                               "compile_ranges_split_points",
                                               "compile_sizes",
                                               "cudagraph_copy_inputs",
                                               "cudagraph_decoder_replay",
                                               "cudagraph_mm_encoder",
                                               "cudagraph_num_of_warmups",
                                               "cudagraph_specialize_lora",
                                               "custom_ops",
                                               "debug_dump_path",
                                               "decoder_replay_cudagraph_capture_sizes",
                                               "decoder_replay_trim_threshold",
                                               "dynamic_shapes_config",
                                               "enable_async_tp",
                                               "enable_attn_fusion",
                                               "enable_fusion",
                                               "enable_noop",
                                               "enable_sequence_parallelism",
                                               "encoder_cudagraph_max_frames_per_batch",
                                               "encoder_cudagraph_max_vision_items_per_batch",
                                               "encoder_cudagraph_token_budgets",
                                               "fast_moe_cold_start",
                                               "full_cuda_graph",
                                               "inductor_compile_config",
                                               "inductor_passes",
                                               "ir_enable_torch_wrap",
                                               "level",
                                               "local_cache_dir",
                                               "max_capture_size",
                                               "mode",
                                               "pass_config",
                                               "simple_cuda_graph",
                                               "splitting_ops",
                                               "splitting_ops_defined",
                                               "static_all_moe_layers",
                                               "use_inductor",
                                               "use_inductor_graph_partition"};

constexpr std::array<std::string_view, 5> kGraphModes = {"NONE", "PIECEWISE", "FULL",
                                                         "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"};

// One of them; of these the first three are numbers, too.
std::string mode_of(const Json& mode) {
  if (mode.kind() == Json::Kind::number)
    return std::string(
        kGraphModes[static_cast<std::size_t>(mode.as_integer({.min = 0, .max = 2}))]);
  std::string name(mode.as_string());
  std::ranges::transform(name, name.begin(),
                         [](char c) { return c >= 'a' && c <= 'z' ? char(c - 32) : c; });
  if (std::ranges::find(kGraphModes, name) == kGraphModes.end())
    mode.fail("must be NONE, PIECEWISE, FULL, FULL_DECODE_ONLY or FULL_AND_PIECEWISE, is " +
              mode.describe());
  return name;
}

void read_member(std::string_view name, const Json& value, CompilationConfig& config) {
  if (name == "cudagraph_mode") {
    const std::string mode = mode_of(value);
    config.no_graphs = config.no_graphs || mode == "NONE";
    config.only_decode = mode == "FULL_DECODE_ONLY";
  } else if (name == "use_cudagraph") {
    config.no_graphs = config.no_graphs || !value.as_boolean();
  } else if (name == "cudagraph_capture_sizes") {
    for (const Json size : value.items())
      config.capture_sizes.push_back(static_cast<int>(size.as_integer({})));
    if (config.capture_sizes.empty()) value.fail("has no size; see cudagraph_mode NONE");
  } else if (name == "max_cudagraph_capture_size") {
    config.max_capture_size = static_cast<int>(value.as_integer({.min = 0}));
  } else if (std::ranges::find(kWithoutEffect, name) != std::end(kWithoutEffect)) {
    config.without_effect.emplace_back(name);
  } else {
    value.fail("is not a member of it");
  }
}

}  // namespace

Result<CompilationConfig> parse_compilation_config(std::string_view json) try {
  const JsonDocument document(std::string(json), {});
  CompilationConfig config;
  if (document.root().whole_number()) {
    document.root().as_integer({.min = 0, .max = 3});
    config.without_effect.emplace_back("level");
    return config;
  }
  for (const auto& [name, value] : document.object().members())
    if (!value.is_null()) read_member(name, value, config);
  return config;
} catch (const Failure& failure) {
  return Error{ErrorCode::invalid_argument, failure.what(), "--compilation-config"};
}

}  // namespace quire
