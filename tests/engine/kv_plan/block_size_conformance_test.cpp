#include <catch2/catch.hpp>

#include <numeric>

#include "engine/kv_plan/block_size.h"
#include "tests/support/conformance.h"

namespace quire {
namespace {

using simdjson::dom::element;

KernelSizes kernel_sizes(element list) {
  KernelSizes sizes;
  for (const element item : list.get_array()) {
    const bool multiple = item.is_object();
    const std::int64_t size = multiple ? item["multiple_of"] : item;
    sizes.push_back({static_cast<int>(size), multiple});
  }
  return sizes;
}

std::vector<KernelSizes> backends(element list) {
  std::vector<KernelSizes> all;
  for (const element item : list.get_array()) all.push_back(kernel_sizes(item));
  return all;
}

std::optional<int> optional_int(element value) {
  if (value.is_null()) return std::nullopt;
  return static_cast<int>(std::int64_t(value));
}

StateCacheMode mode_of(std::string_view name) {
  if (name == "all") return StateCacheMode::all;
  return name == "align" ? StateCacheMode::align : StateCacheMode::none;
}

DType dtype_of_name(std::string_view name) {
  if (name == "float32") return DType::f32;
  if (name == "bfloat16") return DType::bf16;
  return name == "float16" ? DType::f16 : DType::u8;  // int8 and fp8 forms
}

KvQuant quant_of_name(std::string_view name) {
  if (name == "nvfp4") return KvQuant::nvfp4;
  return name.ends_with("_per_token_head") ? KvQuant::int8_per_token_head : KvQuant::none;
}

std::string text_of(std::optional<std::int64_t> value) {
  return value ? std::to_string(*value) : "null";
}

void check_optional(std::string_view what, element expected, std::optional<std::int64_t> actual) {
  test::expect_equal(what, text_of(optional_int(expected)), text_of(actual));
}

KvSpec attention_spec(element input) {
  const std::string_view cache_dtype = input["cache_dtype"];
  return {.kind = bool(input["use_mla"]) ? KvKind::mla : KvKind::full,
          .num_kv_heads = static_cast<int>(std::int64_t(input["num_kv_heads"])),
          .head_size = static_cast<int>(std::int64_t(input["head_size"])),
          .dtype = dtype_of_name(cache_dtype == "auto" ? std::string_view(input["model_dtype"])
                                                       : cache_dtype),
          .quant = quant_of_name(cache_dtype)};
}

KvSpec state_spec(element input) {
  KvSpec spec{.kind = KvKind::mamba};
  auto dtype = input["state_dtypes"].get_array().begin();
  for (const element shape : input["state_shapes"].get_array()) {
    StateTensor state{.shape = {}, .dtype = dtype_of_name(*dtype)};
    for (const element extent : shape.get_array()) state.shape.push_back(std::int64_t(extent));
    spec.states.push_back(state);
    ++dtype;
  }
  return spec;
}

void check_kernel(element vector_case, element expected, int block_size) {
  const auto kernel =
      common_kernel_block_size(block_size, backends(vector_case["input"]["group_backends"]));
  element error;
  const bool refused = expected["kernel_error"].get(error) == simdjson::SUCCESS ||
                       expected["error"].get(error) == simdjson::SUCCESS;
  test::expect_equal("kernel refused", refused, !kernel.has_value());
  if (refused)
    return test::expect_equal("code", "no_common_block_size",
                              std::string(std::string_view(error["code"])));
  test::expect_equal("kernel_block_size", std::int64_t(expected["kernel_block_size"]), *kernel);
  test::expect_equal("kernel_ratio", std::int64_t(expected["kernel_ratio"]), block_size / *kernel);
}

void check_alignment(element vector_case) {
  const element input = vector_case["input"], expected = vector_case["expected"];
  const KernelSizes backend = kernel_sizes(input["backend_kernel_sizes"]);
  const std::optional<int> user_block = optional_int(input["user_block_size"]);
  const int base = user_block.value_or(preferred_block_size(backend));
  test::expect_equal("base_block_size", std::int64_t(expected["base_block_size"]), base);
  const std::size_t token_bytes = page_bytes(attention_spec(input));
  const std::size_t state_bytes = page_bytes(state_spec(input));
  test::expect_equal("attention_page_bytes_one_token",
                     std::int64_t(expected["attention_page_bytes_one_token"]), token_bytes);
  test::expect_equal("mamba_page_bytes", std::int64_t(expected["mamba_page_bytes"]), state_bytes);
  const auto aligned =
      align_hybrid({.attention_bytes_per_token = token_bytes,
                    .state_bytes = bool(input["is_hybrid"]) ? state_bytes : 0,
                    .block_size = base,
                    .mode = mode_of(input["mamba_cache_mode"]),
                    .mamba_block_size = optional_int(input["user_mamba_block_size"]),
                    .mamba_chunk_size = optional_int(input["mamba_chunk_size"]),
                    .backend = backend});
  element error;
  const bool refused = expected["error"].get(error) == simdjson::SUCCESS;
  test::expect_equal("refused", refused, aligned.has_error());
  if (refused)
    return test::expect_equal("field", "CacheConfig::mamba_block_size", aligned.error().field);
  test::expect_equal("block_size", std::int64_t(expected["block_size"]), aligned->block_size);
  check_optional("mamba_block_size", expected["mamba_block_size"], aligned->mamba_block_size);
  check_optional("mamba_page_size_padded", expected["mamba_page_size_padded"],
                 aligned->mamba_page_size_padded);
  test::expect_equal("attention_page_bytes", std::int64_t(expected["attention_page_bytes"]),
                     aligned->attention_page_bytes);
  test::expect_close("padding_percent", double(expected["padding_percent"]),
                     aligned->padding_percent);
  check_kernel(vector_case, expected, aligned->block_size);
}

void check_mode(element vector_case) {
  const element input = vector_case["input"], expected = vector_case["expected"];
  const auto choice =
      choose_state_cache({.model_supports_all = input["model_supports_all"],
                          .enable_prefix_caching = input["enable_prefix_caching"],
                          .mode = mode_of(input["requested_mode"]),
                          .mamba_block_size = optional_int(input["mamba_block_size"]),
                          .block_size = static_cast<int>(std::int64_t(input["block_size"])),
                          .max_model_len = input["max_model_len"],
                          .chunked_prefill = input["chunked_prefill"]});
  element error;
  const bool refused = expected["error"].get(error) == simdjson::SUCCESS;
  test::expect_equal("refused", refused, choice.has_error());
  if (refused)
    return test::expect_equal("field", "SchedulerConfig::enable_chunked_prefill",
                              choice.error().field);
  test::expect_equal("mode", std::string(std::string_view(expected["mode"])),
                     std::string(name_of(choice->mode)));
  test::expect_equal("mamba_block_size", std::int64_t(expected["mamba_block_size"]),
                     choice->block_size);
}

void check_validation(element vector_case) {
  const element input = vector_case["input"];
  const auto checked =
      validate_block_size(static_cast<int>(std::int64_t(input["block_size"])),
                          {.context_parallel = static_cast<int>(std::int64_t(input["dcp"])),
                           .interleave = static_cast<int>(std::int64_t(input["interleave"])),
                           .mode = mode_of(input["mamba_cache_mode"]),
                           .max_num_batched_tokens = input["max_num_batched_tokens"],
                           .long_prefill_token_threshold = input["long_prefill_token_threshold"],
                           .disable_chunked_mm_input = input["disable_chunked_mm_input"]});
  test::expect_equal("accepted", bool(vector_case["expected"]["accepted"]), checked.has_value());
}

}  // namespace

TEST_CASE("A hybrid model's attention block grows until its page holds a state") {
  test::require_conformance("align_hybrid/1", 102, check_alignment);
}

TEST_CASE("The kernel block divides the block and every backend reads it") {
  test::require_conformance("kernel_size/1", 60, [](element vector_case) {
    check_kernel(vector_case, vector_case["expected"],
                 static_cast<int>(std::int64_t(vector_case["input"]["block_size"])));
  });
}

TEST_CASE("The state cache mode follows prefix caching and the model") {
  test::require_conformance("mamba_mode/1", 36, check_mode);
}

TEST_CASE("A block size that the scheduler cannot serve is refused") {
  test::require_conformance("validate_block_size/1", 36, check_validation);
}

}  // namespace quire
