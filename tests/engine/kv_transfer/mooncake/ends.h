#pragma once
// One who prefills and one who decodes over Mooncake, each on a thread of its own.

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cpu/cpu_backend.h"
#include "engine/kv_transfer/mooncake/plane.h"

namespace quire::test {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

inline constexpr int kNumMooncakeLayers = 5;
inline constexpr int kNumMooncakeStates = 2;

// A delta net has 2,624 bytes, a Mamba 2 layer 4,672; whoever fetches has 4,096 in a block of 32
// tokens.
inline KvLayerGeometry some_mooncake_state(const std::string& name, StateForm form) {
  KvLayerGeometry layer{
      .name = name, .kind = KvKind::mamba, .dtype = "bfloat16+float32", .block_size = 16};
  layer.state = {.form = form,
                 .conv_rows = 3,
                 .conv_channels = 96,
                 .conv_element_bytes = 2,
                 .heads = 8,
                 .head_rows = 8,
                 .head_columns = 8,
                 .element_bytes = 4};
  if (form == StateForm::mamba2) layer.state.head_columns = 16;  // of another size
  layer.row_bytes = layer.state.conv_bytes() + 8 * 8 * layer.state.head_columns * 4;
  return layer;
}

// Two layers that keep all, one with a window, and two with states.
inline MooncakeSelf some_mooncake_self(int block_size = 16) {
  MooncakeSelf self;
  for (int i = 0; i < kNumMooncakeLayers - kNumMooncakeStates; ++i)
    self.geometry.layers.push_back({.name = "model.layers." + std::to_string(i) + ".self_attn",
                                    .kind = KvKind::full,
                                    .dtype = "bfloat16",
                                    .heads = 2,
                                    .head_size = 16,
                                    .planes = 2,
                                    .row_bytes = 64,
                                    .window = i == 2 ? 24 : 0,
                                    .block_size = 16});
  self.geometry.model_fingerprint = "f";
  self.geometry.layers.push_back(
      some_mooncake_state("model.layers.3.linear_attn", StateForm::delta_net));
  self.geometry.layers.push_back(some_mooncake_state("model.layers.4.mixer", StateForm::mamba2));
  self.regions = block_regions(std::vector<int>{0, 0, 1, 2, 2});
  self.block_size = block_size;
  return self;
}

inline SocketAddress here(std::uint16_t port) {
  SocketAddress address;
  address.host = "127.0.0.1";
  address.port = port;
  return address;
}

// Of this process.
inline std::size_t num_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

template <class Condition>
bool comes_true(Condition condition, std::chrono::milliseconds patience = 3s) {
  const auto deadline = Clock::now() + patience;
  while (!condition()) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(500us);
  }
  return true;
}

class MooncakeEnds {
 public:
  struct Options {
    std::chrono::milliseconds silence = 100ms;
    std::chrono::milliseconds patience = 500ms;  // for a prefill
    std::chrono::milliseconds lease = 30s;
    std::size_t max_connections = 256;
    std::size_t bytes = 1 << 20;  // of each buffer
    std::chrono::milliseconds idle = 10min;
    bool has_owner = true, has_reader = true;
  };
  explicit MooncakeEnds(Options wanted)
      : options_(wanted),
        kept_(device_->allocate(wanted.bytes), wanted.lease),
        arriving_(device_->allocate(wanted.bytes)) {
    if (wanted.has_owner) start_owner();
    if (wanted.has_reader) start_reader();
  }
  MooncakeEnds() : MooncakeEnds(Options()) {}

  void start_owner(std::uint16_t port = 0) {
    MooncakePlaneOptions options;
    options.self = some_mooncake_self();
    options.listen = here(port);
    options.keeper.engine = "owner";
    options.keeper.silence = options_.silence;
    options.keeper.wait_for_prefill = 10s;  // as long as whoever asks does
    options.keeper.max_connections = options_.max_connections;
    owner_ = plane_of(std::move(options), &kept_, nullptr);
  }
  void start_reader() {
    MooncakePlaneOptions options;
    options.self = some_mooncake_self(32);
    options.listen = here(0);
    options.peers = PeerList(std::vector<KvPeer>{{"127.0.0.1"}});
    options.puller.silence = options_.silence;
    options.puller.prefill_patience = options_.patience;
    options.puller.room_patience = options_.patience;
    options.inbox.silence = options_.silence;
    options.inbox.idle = options_.idle;
    options.inbox.max_connections = options_.max_connections;
    reader_ = plane_of(std::move(options), nullptr, &arriving_);
  }
  void stop_owner() { owner_.reset(); }
  void stop_reader() { reader_.reset(); }

  struct Prefill {
    KvSource source;
    KvContent content;
    std::vector<std::byte> bytes;
  };
  static std::string name_of(std::uint64_t seed) {
    return "what-both-were-told-" + std::to_string(seed);
  }
  // As a prefill of that name will be.
  Prefill made(std::uint64_t seed, int num_tokens) const {
    std::mt19937_64 random(seed);
    Prefill prefill;
    prefill.content = kv_content(some_mooncake_self().geometry, num_tokens);
    prefill.bytes.resize(static_cast<std::size_t>(prefill.content.bytes));
    for (std::byte& one : prefill.bytes) one = static_cast<std::byte>(1 + random() % 255);
    prefill.source.address = here(owner_ ? owner_->port() : 0);
    prefill.source.engine = "owner";
    prefill.source.prefill = {name_of(seed), 0};
    return prefill;
  }
  void keep(std::uint64_t seed, const Prefill& prefill) {
    KeptPrefill kept;
    kept.key = prefill.source.prefill.key;
    kept.content = prefill.content;
    kept.prompt_hash = seed;
    kept.range = kept_.make_room(kept.content.bytes);
    REQUIRE(kept.range != nullptr);
    std::ranges::copy(prefill.bytes, kept.range->bytes().begin());
    kept_.keep(std::move(kept));
  }
  static KvFetch fetch_of(std::uint64_t seed, const Prefill& prefill, int from = 0) {
    KvFetch fetch;
    fetch.request = RequestId{seed};
    fetch.source = prefill.source;
    fetch.num_tokens = prefill.content.num_tokens;
    fetch.from = from;
    fetch.prompt_hash = seed;
    return fetch;
  }
  // A whole fetch of what is kept, and its end.
  KvFetched fetched(std::uint64_t seed, const Prefill& prefill, int from = 0) {
    reader_->watch(RequestId{seed}, prefill.source);
    reader_->fetch(fetch_of(seed, prefill, from));
    return await();
  }

  KvFetched await() { return std::move(await(1).front()); }
  std::vector<KvFetched> await(std::size_t count) {
    std::vector<KvFetched> all;
    comes_true(
        [&] {
          for (KvFetched& one : reader_->take()) all.push_back(std::move(one));
          return all.size() >= count;
        },
        20s);
    REQUIRE(all.size() == count);
    return all;
  }

  // All rows are those that were kept, and none is said to be there that was not.
  static bool is_right(const KvFetched& fetched, const Prefill& prefill, int from) {
    const auto bytes = fetched.range->bytes();
    for (const KvStrip& strip : fetched.content.strips) {
      const auto kept = std::ranges::find_if(prefill.content.strips, [&](const KvStrip& one) {
        return one.layer == strip.layer && one.plane == strip.plane;
      });
      const int needed = std::max(kept->first, from);
      if (strip.first < kept->first || strip.first > needed ||
          strip.first + strip.rows != prefill.content.num_tokens)
        return false;
      const auto* theirs =
          prefill.bytes.data() + kept->offset + (strip.first - kept->first) * strip.row_bytes;
      if (!std::equal(theirs, theirs + strip.bytes(), bytes.data() + strip.offset)) return false;
    }
    return fetched.content.strips.size() == prefill.content.strips.size();
  }

  std::uint16_t owner_port() const { return owner_->port(); }
  std::uint16_t reader_port() const { return reader_->port(); }
  DataPlane& reader() { return *reader_; }
  KeptPrefills& kept() { return kept_; }
  StagingBuffer& arriving() { return arriving_; }
  const Options& options() const { return options_; }

 private:
  static std::unique_ptr<DataPlane> plane_of(MooncakePlaneOptions options, KeptPrefills* kept,
                                             StagingBuffer* arriving) {
    return make_mooncake_plane(std::move(options), kept, arriving, [] {});
  }

  const Options options_;
  const std::unique_ptr<Device> device_ = make_cpu_device();
  KeptPrefills kept_;
  StagingBuffer arriving_;
  std::unique_ptr<DataPlane> owner_, reader_;
};

}  // namespace quire::test
