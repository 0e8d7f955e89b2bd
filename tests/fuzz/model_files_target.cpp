// A model's files: whatever they say, no tensor lies outside of its file, and what is accepted can be
// planned.

#include "backend/measuring_device.h"
#include "base/error.h"
#include "cpu/cpu_backend.h"
#include "model/kv_spec.h"
#include "model/registry.h"
#include "model/safetensors.h"
#include "tests/fuzz/targets.h"

namespace quire::fuzz {

void safetensors(std::string_view bytes) {
  try {
    for (const auto& [name, tensor] : parse_safetensors_header(bytes, bytes.size(), "fuzz"))
      promise(tensor.begin + tensor.bytes <= bytes.size(), "a tensor lies in its file");
  } catch (const Failure&) {
  }
}

void config(std::string_view bytes) {
  try {
    parse_generation_config(bytes, "fuzz");
  } catch (const Failure&) {
  }
  try {
    const ModelConfig config = parse_model_config(bytes, "fuzz");
    promise(config.layer_types.size() == static_cast<std::size_t>(config.num_layers),
            "every layer has a type");
    MeasuringDevice device(true);
    const auto model =
        load_model(config, "fuzz", device, cpu_traits(), {.max_model_len = 64, .measure = true});
    for (const LayerKvSpec& layer : model->kv_specs({}))
      promise(page_bytes(layer.spec) > 0, "a page has bytes");
  } catch (const Failure&) {
  }
}

}  // namespace quire::fuzz
