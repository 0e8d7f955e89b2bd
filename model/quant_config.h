#pragma once
// quantization_config of config.json: how the published matrices are packed, and which of them. A
// scheme that nothing here computes is remembered with the reason, and refused when the model is
// loaded.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/dtype.h"

namespace quire {

class Json;

// What a scale of an fp8 matrix covers.
enum class Fp8Scope : std::uint8_t { tensor, channel, block };

// Matrices in e4m3, published beside their scales: weight = code · scale. What a published matrix
// is stored as decides whether it is one of them.
struct Fp8Config {
  Fp8Scope scope = Fp8Scope::tensor;  // block: kFp8Block × kFp8Block
  std::string scale_suffix;           // of a matrix's name: "_scale" or "_scale_inv"
  bool static_input = false;          // one published scale for a product's input, "input_scale"
  // Modules that stay as they are: full names, their last parts, the names of what they are in, or
  // "re:" and a regular expression for the beginning of the full name.
  std::vector<std::string> ignored;

  bool ignores(std::string_view module) const;
};

struct QuantConfig {
  std::string method;            // quant_method as published: "mxfp4", "fp8", …; empty: none
  std::optional<Fp8Config> fp8;  // where the method is fp8 or compressed-tensors' form of it
  std::optional<DType> kv_cache_dtype = {};  // what the checkpoint was calibrated for
  std::string unsupported_field;   // "quantization_config.quant_method", …; empty: supported
  std::string unsupported_reason;  // what it is and what would be supported

  bool supported() const { return unsupported_field.empty(); }
};

// `quantization` is the object itself.
QuantConfig parse_quantization(const Json& quantization);

}  // namespace quire
