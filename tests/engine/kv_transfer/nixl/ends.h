#pragma once
// One who keeps prefills in blocks and one who fetches them over NIXL, each with a plane of its
// own.

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cpu/cpu_backend.h"
#include "engine/kv_nixl/nixl_library.h"
#include "engine/kv_transfer/nixl/plane.h"

namespace quire::test {

// As vLLM's process in tests has them: 4 layers of 2 heads of 64 numbers.
inline KvGeometry nixl_geometry(int window = 0, int chunk = 0) {
  KvGeometry geometry{.model_fingerprint = "f", .layers = {}};
  KvSpec spec;
  spec.dtype = DType::bf16;
  spec.num_kv_heads = 2;
  spec.head_size = 64;
  for (int i = 0; i < 4; ++i) {
    spec.kind = window > 0 && i % 2 == 1 ? KvKind::sliding_window : KvKind::full;
    if (chunk > 0 && i % 2 == 1) spec.kind = KvKind::chunked_local;
    spec.sliding_window = spec.kind == KvKind::sliding_window ? window : 0;
    spec.attention_chunk_size = spec.kind == KvKind::chunked_local ? chunk : 0;
    geometry.layers.push_back(
        layer_geometry({"model.layers." + std::to_string(i) + ".self_attn", spec}, 16));
  }
  return geometry;
}

// The same with two layers of states before them, of 30,208 bytes: four of the kernel's blocks of
// 16 tokens.
inline KvGeometry hybrid_geometry(StateForm form, int window = 0) {
  KvGeometry geometry = nixl_geometry(window);
  KvSpec spec;
  spec.kind = KvKind::mamba;
  spec.state_form = form;
  spec.states = {{.shape = {3, 256}, .dtype = DType::bf16},
                 {.shape = {4, 32, 56}, .dtype = DType::f32}};
  for (const char* name : {"model.layers.5.mixer", "model.layers.4.mixer"})
    geometry.layers.insert(geometry.layers.begin(), layer_geometry({name, spec}, 16));
  return geometry;
}

inline bool has_nixl() {
  const bool has = std::getenv("QUIRE_NIXL_LIBRARY") != nullptr;
  if (!has) WARN("skipped: QUIRE_NIXL_LIBRARY does not name libnixl_capi.so");
  return has;
}

inline const NixlLibrary& nixl_library() {
  static const NixlLibrary library(std::getenv("QUIRE_NIXL_LIBRARY"));
  return library;
}

inline NixlThreadOptions nixl_thread_options(const KvGeometry& geometry) {
  NixlThreadOptions options;
  if (std::getenv("QUIRE_NIXL_LIBRARY") != nullptr) options.library = &nixl_library();
  options.attention_backend = "FLASH_ATTN";
  options.engine = "owner";
  options.self.geometry = geometry;
  std::vector<int> groups;
  const int num_states = geometry.has_states() ? 1 : 0;  // of groups, the first
  for (const KvLayerGeometry& layer : geometry.layers)
    groups.push_back(layer.is_state() ? 0 : num_states + (layer.window + layer.chunk > 0 ? 1 : 0));
  options.self.regions = block_regions(groups);
  options.self.profile = *find_nixl_profile("");
  options.self.factors = {.vllm_version = "0.33.0",
                          .connector_version = 15,
                          .model = "tiny",
                          .dtype = "torch.bfloat16",
                          .num_kv_heads = 2,
                          .head_size = 64,
                          .num_hidden_layers = 4,
                          .attention_backend = "FLASH_ATTN"};
  options.silence = std::chrono::milliseconds(500);
  return options;
}

inline NixlPlaneOptions nixl_plane_options(const KvGeometry& geometry) {
  NixlPlaneOptions options{.thread = nixl_thread_options(geometry), .puller = {}};
  options.puller.renew_every = std::chrono::milliseconds(50);
  return options;
}

class NixlEnds {
 public:
  explicit NixlEnds(KvGeometry g = nixl_geometry(), std::chrono::nanoseconds lease = kLease)
      : geometry(std::move(g)),
        exports(device_->allocate(4 << 20), geometry, nixl_thread_options(geometry).self.regions,
                BlockOrder::packed, 1 << 19, lease),
        arriving(device_->allocate(4 << 20)) {
    NixlPlaneOptions options = nixl_plane_options(geometry);
    options.thread.listen.emplace();
    options.thread.listen->host = "127.0.0.1";
    owner = make_nixl_plane(std::move(options), &exports, nullptr, [] {});
    reader = make_nixl_plane(nixl_plane_options(geometry), nullptr, &arriving, [] {});
  }

  // Random bytes of a prefill, and what a request would say of where they are.
  std::vector<std::byte> keep(const std::string& key, int num_tokens) {
    const KvContent content = kv_content(geometry, num_tokens);
    std::vector<std::byte> bytes(static_cast<std::size_t>(content.bytes));
    std::mt19937_64 random(static_cast<unsigned>(num_tokens));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    const auto blocks = exports.keep(
        key, prompt_hash, num_tokens, [&](const KvContent& one, std::span<std::byte> into) {
          const auto first =
              std::ranges::find(content.strips, one.strips.front().layer, &KvStrip::layer);
          std::copy_n(bytes.begin() + first->offset, one.bytes, into.begin());
          return true;
        });
    REQUIRE(blocks);
    source = {};
    source.address.host = "127.0.0.1";
    source.address.port = owner->port();
    source.engine = "owner";
    source.prefill.key = key;
    source.blocks = *blocks;
    return bytes;
  }

  KvFetched fetch(int num_tokens, int from = 0) {
    KvFetch wanted;
    wanted.request = RequestId{++last_};
    wanted.source = source;
    wanted.num_tokens = num_tokens;
    wanted.from = from;
    wanted.prompt_hash = prompt_hash;
    reader->watch(wanted.request, source);
    reader->fetch(wanted);
    KvFetched fetched = wait();
    reader->release(wanted.request);
    return fetched;
  }

  KvFetched wait() {
    for (int i = 0; i < 20'000; ++i) {
      auto taken = reader->take();
      if (!taken.empty()) return std::move(taken.front());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    FAIL("nothing came");
    return {};
  }

  static constexpr std::chrono::nanoseconds kLease = std::chrono::seconds(30);

 private:
  const std::unique_ptr<Device> device_ = make_cpu_device();
  std::uint64_t last_ = 0;

 public:
  const KvGeometry geometry;
  NixlExports exports;
  StagingBuffer arriving;
  KvSource source;
  std::uint64_t prompt_hash = 0x1234;  // of what is kept, and of what is fetched
  std::unique_ptr<DataPlane> owner, reader;
};

}  // namespace quire::test
