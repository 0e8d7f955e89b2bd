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
  std::vector<std::string> ignored;   // as names_module() reads them

  bool ignores(std::string_view module) const;
};

// Modules that stay as they are: full names, their last parts, the names of what they are in, or
// "re:" and a regular expression for the beginning of the full name.
bool names_module(const std::vector<std::string>& list, std::string_view module);

// Where integers of 4 or 8 bits lie in the file.
enum class PackedLayout : std::uint8_t {
  gptq,        // qweight [K / n, N], n codes of a column in a word
  awq,         // qweight [K, N / n], n rows in a word
  compressed,  // compressed-tensors' weight_packed [N, K / n]
  int8,        // compressed-tensors' weight i8 [N, K]
};

// Matrices of small integers: weight = scale · (code − zero), with a scale for each group_size
// columns of a row. What a published matrix has beside it decides whether it is one of them.
struct PackedConfig {
  PackedLayout layout = PackedLayout::gptq;
  int bits = 4;                  // or 8
  int group_size = 0;            // columns; 0: the whole row
  bool symmetric = true;         // zero is the middle code
  bool act_order = false;        // columns belong to groups as a list says
  bool zeros_minus_one = false;  // zeros are stored so
  // What is expected to be packed where sizes are asked for before the files are there.
  std::vector<std::string> ignored = {};  // as names_module() reads them
  bool head = false;                      // lm_head too, unless it is ignored
};

struct QuantConfig {
  std::string method;            // quant_method as published: "mxfp4", "fp8", …; empty: none
  std::optional<Fp8Config> fp8;  // where the method is fp8 or compressed-tensors' form of it
  std::optional<PackedConfig> packed = {};
  std::optional<DType> kv_cache_dtype = {};  // what the checkpoint was calibrated for
  std::string unsupported_field;   // "quantization_config.quant_method", …; empty: supported
  std::string unsupported_reason;  // what it is and what would be supported

  bool supported() const { return unsupported_field.empty(); }
};

// `quantization` is the object itself; `method` what it is where it does not say so.
QuantConfig parse_quantization(const Json& quantization, std::string_view method = "unknown");

}  // namespace quire
