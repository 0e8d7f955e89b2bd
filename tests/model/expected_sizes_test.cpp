// Sizes of packed weights before their files are there, against those of the files.

#include <catch2/catch.hpp>

#include "backend/measuring_device.h"
#include "cpu/cpu_backend.h"
#include "model/registry.h"
#include "tests/support/temp_path.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

std::size_t measured(const fs::path& model, bool is_host_memory, const LoadOptions& options) {
  const auto ops = make_cpu_ops({.threads = 1});
  MeasuringDevice device(is_host_memory);
  LoadOptions measuring = options;
  measuring.measure = true;
  return load_model(read_model_config(model), model, device, ops->traits(), measuring)
      ->weight_bytes();
}

TEST_CASE("packed weights are counted as packed from config.json alone", "[model][packed]") {
  const fs::path folder = temp_path("quire_expected_sizes");
  fs::create_directories(folder);
  const auto check = [&](const fs::path& model, const LoadOptions& options) {
    fs::copy_file(model / "config.json", folder / "config.json",
                  fs::copy_options::overwrite_existing);
    for (const bool is_host_memory : {true, false}) {
      INFO(model.string() << " " << options.quantization << " " << is_host_memory);
      const std::size_t whole = measured(model, is_host_memory, options);
      CHECK(measured(folder, is_host_memory, options) == whole);
    }
  };
  for (const char* name : {"gptq-int4", "awq-int4", "ct-int4", "ct-fp8", "fp8-block"})
    check(fs::path("tests/data/golden/quantized") / name, {});
  check("tests/data/golden/quantized/gptq-int4", {.dtype = DType::f32});
  check("models/quire-tiny", {});
  check("models/quire-tiny", {.quantization = "int4"});
  check("models/quire-tiny", {.quantization = "int8"});
  fs::remove_all(folder);
}

}  // namespace
}  // namespace quire
