// What layers say they store, and what they do with pages that hold anything else.

#include <catch2/catch.hpp>

#include <functional>
#include <vector>

#include "backend/measuring_device.h"
#include "base/error.h"
#include "cpu/cpu_backend.h"
#include "model/registry.h"

namespace quire {
namespace {

constexpr int kBlockSize = 32;
constexpr int kKernelBlockSize = 16;

struct Measured {
  explicit Measured(const std::string& folder)
      : config(read_model_config(folder)),
        model(load_model(config, folder, device, cpu_traits(),
                         {.dtype = config.dtype, .max_model_len = 64, .measure = true})) {}

  // Pages of exactly the size that the layers ask for.
  std::vector<LayerCache> caches(const KvSpecOptions& options = {}) {
    std::vector<LayerCache> caches;
    for (LayerKvSpec& layer : model->kv_specs(options)) {
      layer.spec.block_size = kBlockSize;
      caches.push_back({.base = &memory,
                        .num_blocks = 4,
                        .page_bytes = page_bytes(layer.spec),
                        .block_size = kBlockSize,
                        .kernel_block_size = kKernelBlockSize,
                        .spec = layer.spec});
    }
    return caches;
  }

  alignas(64) std::byte memory = {};
  MeasuringDevice device{true};
  ModelConfig config;
  std::unique_ptr<Model> model;
};

// Attention, latent attention, Mamba2 beside attention, gated delta net beside attention.
const char* const kFolders[] = {"models/quire-tiny", "tests/data/golden/models/deepseek-v3",
                                "tests/data/golden/models/nemotron-h",
                                "tests/data/golden/models/qwen3-5", "models/quire-tiny-hybrid"};

bool refuses(Measured& measured, std::size_t layer,
             const std::function<void(LayerCache&)>& change) {
  auto caches = measured.caches();
  change(caches[layer]);
  try {
    measured.model->bind_cache(caches);
    return false;
  } catch (const Failure& failure) {
    CHECK(failure.error().detail.find("KV cache of ") == 0);
    return true;
  }
}

}  // namespace

TEST_CASE("A layer takes pages of what it stores", "[model]") {
  for (const char* folder : kFolders) {
    CAPTURE(folder);
    Measured measured(folder);
    measured.model->bind_cache(measured.caches());
    measured.model->bind_cache(measured.caches(
        {.cache_dtype = DType::f32, .conv_state_dtype = DType::f32, .num_speculative_tokens = 3}));
  }
}

TEST_CASE("A layer refuses pages that were planned by another formula", "[model]") {
  for (const char* folder : kFolders) {
    Measured measured(folder);
    for (std::size_t i = 0; i < measured.caches().size(); ++i) {
      CAPTURE(folder, i);
      const bool state = measured.caches()[i].spec.kind == KvKind::mamba;
      // Shares of tensor-parallel ranks that this model was not loaded for.
      CHECK(refuses(measured, i, [&](LayerCache& cache) {
        if (state)
          cache.spec.states[1].shape[0] /= 2;
        else
          cache.spec.head_size /= 2;
        cache.page_bytes = page_bytes(cache.spec);
      }));
      CHECK(refuses(measured, i, [&](LayerCache& cache) {
        if (state)
          cache.spec.states[0].shape[1] /= 2;
        else
          cache.spec.num_kv_heads *= 2;
        cache.page_bytes = page_bytes(cache.spec);
      }));
      CHECK(refuses(measured, i, [](LayerCache& cache) { cache.page_bytes /= 2; }));
      if (!state)
        CHECK(refuses(measured, i, [](LayerCache& cache) { cache.spec.block_size = 16; }));
    }
  }
}

TEST_CASE("Layers are called as vLLM calls them", "[model]") {
  const auto names = [](const char* folder) {
    std::vector<std::string> names;
    for (const LayerKvSpec& layer : Measured(folder).model->kv_specs({}))
      names.push_back(layer.layer);
    return names;
  };
  CHECK(names("models/quire-tiny").front() == "model.layers.0.self_attn.attn");
  CHECK(names("tests/data/golden/models/deepseek-v3").front() == "model.layers.0.self_attn.attn");
  CHECK(names("tests/data/golden/models/nemotron-h").front() == "model.layers.0.mixer");
  CHECK(names("tests/data/golden/models/qwen3-5").front() == "model.layers.0.linear_attn");
}

}  // namespace quire
