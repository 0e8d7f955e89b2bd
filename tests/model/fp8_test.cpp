// Checkpoints in fp8: what is read and what is refused; and models quantized here, against the same
// models with the numbers that their codes and scales stand for.

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include "app/check/golden.h"
#include "backend/dispatch.h"
#include "backend/fp8.h"
#include "cpu/cpu_backend.h"
#include "model/fp8_weights.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/direct_runner.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

QuantConfig parse(const std::string& quantization) {
  return parse_model_config(R"({"architectures":["LlamaForCausalLM"],"vocab_size":8,)"
                            R"("hidden_size":64,"num_attention_heads":4,"num_hidden_layers":1,)"
                            R"("quantization_config":)" +
                                quantization + "}",
                            "config.json")
      .quant;
}

// compressed-tensors with these weights, inputs and further fields.
std::string compressed(const std::string& weights, const std::string& inputs,
                       const std::string& more = "") {
  return R"({"quant_method":"compressed-tensors","format":"float-quantized","config_groups":)"
         R"({"group_0":{"targets":["Linear"],"weights":)" +
         weights + R"(,"input_activations":)" + inputs + "}}" + more + "}";
}

const std::string kChannel = R"({"num_bits":8,"type":"float","strategy":"channel"})";
const std::string kDynamic = R"({"num_bits":8,"type":"float","strategy":"token","dynamic":true})";
const std::string kStatic = R"({"num_bits":8,"type":"float","strategy":"tensor","dynamic":false})";

TEST_CASE("fp8 schemes are read from both published forms", "[model][fp8]") {
  const QuantConfig channel = parse(compressed(kChannel, kDynamic, R"(,"ignore":["lm_head"])"));
  REQUIRE(channel.fp8);
  CHECK(channel.fp8->scope == Fp8Scope::channel);
  CHECK(channel.fp8->scale_suffix == "_scale");
  CHECK_FALSE(channel.fp8->static_input);
  CHECK(channel.fp8->ignores("lm_head"));
  CHECK(parse(compressed(R"({"num_bits":8,"type":"float","strategy":"tensor"})", kStatic))
            .fp8->static_input);
  const std::string block =
      R"({"num_bits":8,"type":"float","strategy":"block","block_structure":[128,128]})";
  CHECK(parse(compressed(block, kDynamic)).fp8->scope == Fp8Scope::block);

  const QuantConfig blocks = parse(R"({"quant_method":"fp8","weight_block_size":[128,128]})");
  REQUIRE(blocks.fp8);
  CHECK(blocks.fp8->scope == Fp8Scope::block);
  CHECK(blocks.fp8->scale_suffix == "_scale_inv");
  const QuantConfig tensor = parse(R"({"quant_method":"fp8","activation_scheme":"static"})");
  CHECK(tensor.fp8->scope == Fp8Scope::tensor);
  CHECK(tensor.fp8->static_input);
}

TEST_CASE("a sparsity_config that says dense leaves nothing out", "[model][fp8]") {
  const char* const dense =
      R"(,"sparsity_config":{"format":"dense","global_sparsity":0.1,"sparsity_structure":"0:0"})";
  CHECK(parse(compressed(kChannel, kDynamic, dense)).supported());
}

TEST_CASE("modules that are ignored are named in several ways", "[model][fp8]") {
  Fp8Config config;
  config.ignored = {"lm_head", "model.layers.0", "re:.*mlp\\.gate$"};
  CHECK(config.ignores("language_model.lm_head"));
  CHECK(config.ignores("model.layers.0.mlp.up_proj"));
  CHECK(config.ignores("model.layers.7.mlp.gate"));
  CHECK_FALSE(config.ignores("model.layers.01.mlp.up_proj"));
  CHECK_FALSE(config.ignores("model.layers.7.mlp.gate_proj"));
  CHECK_FALSE(config.ignores("lm_head2"));
}

TEST_CASE("what is not supported is refused by its field", "[model][fp8]") {
  struct Case {
    std::string quantization, field;
  };
  const auto c = GENERATE(values<Case>({
      {R"({"quant_method":"bitsandbytes"})", "quant_method"},
      {R"({"quant_method":"fp8","fmt":"e5m2"})", "fmt"},
      {R"({"quant_method":"fp8","weight_block_size":[64,64]})", "weight_block_size"},
      {R"({"quant_method":"fp8","weight_block_size":[128,128],"activation_scheme":"static"})",
       "activation_scheme"},
      {R"({"quant_method":"compressed-tensors","format":"marlin-24"})", "format"},
      {compressed(R"({"num_bits":4,"type":"float"})", kDynamic), "group_0.weights.num_bits"},
      {compressed(R"({"num_bits":8,"type":"int"})", kDynamic), "group_0.weights.type"},
      {compressed(R"({"num_bits":8,"type":"float","strategy":"group"})", kDynamic),
       "group_0.weights.strategy"},
      {compressed(kChannel, "null"), "group_0.input_activations"},
      {compressed(kChannel, R"({"num_bits":8,"type":"float","strategy":"channel"})"),
       "group_0.input_activations.strategy"},
      {compressed(kChannel, kDynamic, R"(,"ignore":["re:("])"), "ignore"},
      {compressed(kChannel, kDynamic, R"(,"sparsity_config":{"format":"sparse-24-bitmask"})"),
       "sparsity_config.format"},
  }));
  INFO(c.quantization);
  const QuantConfig quant = parse(c.quantization);
  CHECK_FALSE(quant.supported());
  CHECK(quant.unsupported_field.ends_with(c.field));
  CHECK(quant.unsupported_reason.find("(") != std::string::npos);  // and what would be
}

// One matrix "m.weight" [2, 3] in e4m3, with whatever is beside it.
std::string refusal(const std::map<std::string, FileTensor>& more,
                    const std::optional<Fp8Config>& config) {
  ModelFolder folder("fp8_refusal");
  std::map<std::string, FileTensor> tensors = more;
  tensors.emplace("m.weight", file_tensor<std::uint8_t>("F8_E4M3", {2, 3}, {1, 2, 3, 4, 5, 6}));
  folder.write_tensors(tensors);
  const Checkpoint checkpoint(folder.path());
  const Fp8Weights weights(&checkpoint, config);
  try {
    if (weights.has("m.weight")) weights.scales("m.weight", 2, 3);
    if (config && config->static_input) weights.input_scale("m.weight");
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "";
}

TEST_CASE("bad scales are refused with the tensor's name", "[model][fp8]") {
  const Fp8Config channel{.scope = Fp8Scope::channel, .scale_suffix = "_scale", .ignored = {}};
  const auto scales = [](std::vector<std::int64_t> shape, const std::vector<float>& values) {
    return std::map<std::string, FileTensor>{
        {"m.weight_scale", file_tensor("F32", std::move(shape), values)}};
  };
  CHECK(refusal(scales({2, 1}, {1, 2}), channel).empty());
  CHECK(refusal(scales({2}, {1, 2}), channel).empty());
  CHECK_THAT(refusal({}, channel), Catch::Contains("\"m.weight_scale\" is missing"));
  CHECK_THAT(refusal(scales({3, 1}, {1, 2, 3}), channel),
             Catch::Contains("has shape [3, 1], expected [2, 1]"));
  CHECK_THAT(refusal(scales({2, 1}, {1, 0}), channel), Catch::Contains("m.weight_scale") &&
                                                           Catch::Contains("at 1") &&
                                                           Catch::Contains("positive"));
  CHECK_THAT(refusal(scales({2, 1}, {NAN, 1}), channel), Catch::Contains("nan at 0"));
  CHECK_THAT(refusal(scales({2, 1}, {1, INFINITY}), channel), Catch::Contains("inf at 1"));
  CHECK_THAT(
      refusal({{"m.weight_scale", file_tensor<std::int32_t>("I32", {2, 1}, {1, 1})}}, channel),
      Catch::Contains("stored as int32"));
  CHECK_THAT(refusal({}, {}), Catch::Contains("\"m.weight\" is stored as fp8_e4m3, and no "
                                              "quantization_config"));
  Fp8Config ignoring = channel;
  ignoring.ignored = {"m"};
  CHECK_THAT(refusal({}, ignoring), Catch::Contains("is not quantized"));
  Fp8Config static_input{
      .scope = Fp8Scope::tensor, .scale_suffix = "_scale", .static_input = true, .ignored = {}};
  CHECK_THAT(refusal(scales({1}, {1}), static_input),
             Catch::Contains("\"m.input_scale\" is missing"));
}

TEST_CASE("picked rows keep their scales, or have none in common", "[model][fp8]") {
  const Fp8Scales rows{.format = WeightFormat::fp8_rows, .columns = 1, .values = {1, 2, 3}};
  CHECK(rows.of_rows({2, 0})->values == std::vector<float>{3, 1});
  const Fp8Scales blocks{.format = WeightFormat::fp8_blocks, .columns = 2, .values = {1, 2, 3, 4}};
  std::vector<std::int64_t> pick;
  for (std::int64_t i = 128; i < 256; ++i) pick.push_back(i);
  for (std::int64_t i = 0; i < 100; ++i) pick.push_back(i);
  CHECK(blocks.of_rows(pick)->values == std::vector<float>{3, 4, 1, 2});
  pick.insert(pick.begin(), 0);
  CHECK_FALSE(blocks.of_rows(pick));
}

TEST_CASE("columns keep the scales of whole blocks, or of a part of one", "[model][fp8]") {
  const Fp8Scales rows{.format = WeightFormat::fp8_rows, .columns = 1, .values = {1, 2, 3}};
  CHECK(rows.of_columns({8, 16})->values == rows.values);
  const Fp8Scales blocks{
      .format = WeightFormat::fp8_blocks, .columns = 3, .values = {1, 2, 3, 4, 5, 6}};
  const auto last = blocks.of_columns({128, 384});
  CHECK(last->columns == 2);
  CHECK(last->values == std::vector<float>{2, 3, 5, 6});
  CHECK(blocks.of_columns({192, 256})->values == std::vector<float>{2, 5});
  CHECK_FALSE(blocks.of_columns({192, 320}));
}

// Part 0 of a golden model's folder is quantized, part 1 has the numbers that its codes stand for.
struct Quantized {
  ModelFolder packed{"fp8_packed"}, plain{"fp8_plain"};
};

bool becomes_fp8(const std::string& name, const StoredTensor& tensor) {
  return tensor.shape.size() == 2 && name.find("proj") != std::string::npos &&
         !name.ends_with("in_proj_a.weight") && !name.ends_with("in_proj_b.weight");
}

// Scales are made up: larger numbers than a code's range would become its ends.
void quantize(const std::vector<float>& values, const StoredTensor& tensor, Fp8Scope scope,
              const std::string& name, std::map<std::string, FileTensor>& packed,
              std::map<std::string, FileTensor>& plain) {
  const std::int64_t rows = tensor.shape[0], columns = tensor.shape[1];
  const std::int64_t down = scope == Fp8Scope::tensor ? rows : scope == Fp8Scope::block ? 128 : 1;
  const std::int64_t across = scope == Fp8Scope::block ? 128 : columns;
  const std::int64_t scale_rows = (rows + down - 1) / down;
  const std::int64_t scale_columns = (columns + across - 1) / across;
  std::vector<float> scales, numbers(values.size());
  std::vector<std::uint8_t> codes(values.size());
  for (std::int64_t i = 0; i < scale_rows * scale_columns; ++i) {
    scales.push_back(static_cast<float>(bf16(0.002f + 0.0003f * static_cast<float>(i % 7))));
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i) / columns,
               column = static_cast<std::int64_t>(i) % columns;
    const float scale =
        scales[static_cast<std::size_t>(row / down * scale_columns + column / across)];
    const fp8_e4m3 code(values[i] / scale);
    codes[i] = code.bits;
    numbers[i] = static_cast<float>(code) * scale;
  }
  packed[name] = file_tensor("F8_E4M3", tensor.shape, codes);
  plain[name] = file_tensor("F32", tensor.shape, numbers);
  if (scope == Fp8Scope::tensor) {
    packed[name + "_scale"] = file_tensor("F32", {1}, scales);
  } else if (scope == Fp8Scope::channel) {
    packed[name + "_scale"] = file_tensor("F32", {rows, 1}, scales);
  } else {
    packed[name + "_scale_inv"] = file_tensor("F32", {scale_rows, scale_columns}, scales);
  }
}

std::string read_text(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

void make(Quantized& folders, const fs::path& golden, Fp8Scope scope,
          const std::string& quantization) {
  const Checkpoint checkpoint(golden);
  std::map<std::string, FileTensor> packed, plain;
  for (const auto& [key, entry] : checkpoint.tensors()) {
    const std::string name(key);
    const auto* data = reinterpret_cast<const bf16*>(entry.file->data(*entry.tensor));
    REQUIRE(entry.tensor->dtype == DType::bf16);
    const std::vector<bf16> raw(data, data + entry.tensor->bytes / sizeof(bf16));
    if (becomes_fp8(name, *entry.tensor)) {
      const std::vector<float> values(raw.begin(), raw.end());
      quantize(values, *entry.tensor, scope, name, packed, plain);
    } else {
      packed[name] = plain[name] = file_tensor("BF16", entry.tensor->shape, raw);
    }
  }
  const std::string config = read_text(golden / "config.json");
  folders.plain.write_config(config);
  folders.packed.write_config("{\"quantization_config\":" + quantization + "," +
                              config.substr(config.find('{') + 1));
  folders.plain.write_tensors(plain);
  folders.packed.write_tensors(packed);
}

struct Answer {
  std::vector<float> logits;
  std::size_t weight_bytes;
  std::vector<std::string> notes;
  int vocab_size;
};

Answer answer(const fs::path& folder) {
  const ModelConfig config = read_model_config(folder);
  const auto device = make_cpu_device();
  const auto ops = make_cpu_ops({.threads = 2});
  const auto model = load_model(config, folder, *device, ops->traits(), {.dtype = DType::f32});
  DirectRunner runner(*model, *device, *ops, {});
  std::vector<TokenId> prompt;
  for (int i = 0; i < 30; ++i) prompt.push_back(i * 7 % 300);
  const int request = runner.add_request(static_cast<int>(prompt.size()));
  return {runner.step({{request, prompt}}), model->weight_bytes(), model->notes(),
          model->vocab_size()};
}

TEST_CASE("a model in fp8 answers as the numbers that its codes stand for", "[model][fp8]") {
  struct Case {
    const char* name;
    Fp8Scope scope;
    std::string quantization;
    std::size_t num_notes;  // kv_b_proj; experts within blocks
  };
  const std::string golden = GENERATE("deepseek-v3", "qwen3-5");
  const bool deepseek = golden == "deepseek-v3";
  const auto c = GENERATE_COPY(values<Case>({
      {"tensor", Fp8Scope::tensor, R"({"quant_method":"fp8"})", deepseek ? 1u : 0u},
      {"channel", Fp8Scope::channel, compressed(kChannel, kDynamic), deepseek ? 1u : 0u},
      {"block", Fp8Scope::block, R"({"quant_method":"fp8","weight_block_size":[128,128]})",
       deepseek ? 2u : 0u},
  }));
  INFO(golden << ", " << c.name);
  Quantized folders;
  make(folders, fs::path("tests/data/golden/models") / golden, c.scope, c.quantization);
  const Answer packed = answer(folders.packed.path()), plain = answer(folders.plain.path());
  CHECK(distance(packed.logits, plain.logits, plain.vocab_size).max_abs < 1e-3);
  CHECK(*std::max_element(plain.logits.begin(), plain.logits.end()) > 0.1f);
  CHECK(packed.notes.size() == c.num_notes);
  CHECK(packed.weight_bytes < plain.weight_bytes);
}

}  // namespace
}  // namespace quire::test
