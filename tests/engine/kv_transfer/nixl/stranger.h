#pragma once
// A server of another make: an agent of NIXL's library and a side channel, which say and write what
// a test wants.

#include <atomic>
#include <catch2/catch.hpp>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/kv_nixl/nixl_agent.h"
#include "engine/kv_nixl/push_registration.h"
#include "engine/kv_nixl/side_channel.h"
#include "tests/engine/kv_transfer/nixl/ends.h"

namespace quire::test {

class NixlStranger {
 public:
  struct Options {
    bool is_quire = false;
    int protocol = kKvProtocol;  // as a Quire server
    int num_ranks = 1;           // that share the heads, and answer as one agent
  };
  explicit NixlStranger(const NixlSelf& self) : NixlStranger(self, Options()) {}
  NixlStranger(const NixlSelf& self, Options options)
      : self_(self),
        options_(options),
        agent_(nixl_library(), "stranger" + std::to_string(std::random_device()())),
        memory_(1 << 20) {
    agent_.register_memory(memory_);
    SocketAddress address;
    address.host = "127.0.0.1";
    port_ = channel_.listen(address);
    thread_ = std::thread([this] { run(); });
  }
  ~NixlStranger() {
    stopping_ = true;
    channel_.wake();
    thread_.join();
  }

  std::uint16_t port() const { return port_; }
  void register_again() { registers_again_ = true; }  // before the next answer
  int num_asked() const { return num_asked_; }  // for its metadata, of whichever rank
  KvSource source(const std::string& request) const {
    KvSource source;
    source.address.host = "127.0.0.1";
    source.address.port = port_;
    source.engine = "stranger";
    source.prefill.key = source.request = request;
    source.pushed = true;
    return source;
  }

  struct Met {
    NixlMetadata metadata;
    std::string agent;
  };
  Met meet(std::uint16_t port) {
    const auto frames = asked(port, encode_metadata_request({0, 0}, self_.profile));
    Met met;
    met.metadata = *parse_metadata(parse_handshake(frames.front())->metadata, self_.profile);
    met.agent = agent_.add_remote(met.metadata.agent);
    return met;
  }
  static std::vector<std::string> asked(std::uint16_t port, const std::string& what) {
    SideChannel asks;
    SocketAddress address;
    address.host = "127.0.0.1";
    address.port = port;
    const auto question = asks.ask(address, what);
    for (int i = 0; i < 5000; ++i) {
      asks.wait(std::chrono::steady_clock::now() + std::chrono::milliseconds(1));
      if (auto frames = question->take()) return std::move(*frames);
    }
    FAIL("no answer");
    return {};
  }

  // What a server says on its side channel of a registration.
  static NixlPushStatus state_of(std::uint16_t port, const std::string& request) {
    const auto frames = asked(port, encode_push_question({request}));
    const auto states = parse_push_states(frames.front());
    REQUIRE(states);
    return states->front();
  }

  void say(const Met& met, const std::string& notice) { agent_.notify(met.agent, notice); }

  // Into all that was registered, one byte everywhere; then the notice.
  void write(const Met& met, const NixlPushRegistration& registration, std::byte value,
             const std::string& notice) {
    std::ranges::fill(memory_, value);
    std::vector<NixlCopy> copies;
    for (std::size_t region = 0; region < met.metadata.base_addresses.size(); ++region)
      for (const auto& group : registration.blocks)
        for (const std::int64_t id : group)
          copies.push_back({memory_.data(),
                            met.metadata.base_addresses[region] +
                                static_cast<std::uint64_t>(id) * met.metadata.block_strides[region],
                            met.metadata.block_lens[region]});
    NixlTransfer transfer = agent_.write(met.agent, NixlMemory::dram, 0, copies, notice);
    for (int i = 0; i < 5000 && transfer.poll() == NixlTransfer::State::running; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(transfer.poll() == NixlTransfer::State::done);
  }

  // The next one; waits for it.
  NixlPushRegistration registered() {
    for (int i = 0; i < 5000; ++i) {
      for (const auto& [from, notice] : agent_.take_notices())
        if (auto registration = parse_push_registration(notice)) return *registration;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    FAIL("nothing was registered");
    return {};
  }

 private:
  void run() {
    while (!stopping_) {
      channel_.answer_all([this](std::string_view question) {
        const auto rank = parse_metadata_request(question);
        if (rank) ++num_asked_;
        const bool is_there = !rank || rank->tensor < options_.num_ranks;
        return is_there ? answer() : std::vector<std::string>();
      });
      channel_.wait(std::chrono::steady_clock::now() + std::chrono::milliseconds(20));
    }
  }
  std::vector<std::string> answer() {
    if (registers_again_.exchange(false)) agent_.register_memory(more_memory_.emplace_back(4096));
    NixlMetadata metadata;
    metadata.engine = "stranger";
    metadata.agent = agent_.metadata();
    for (std::size_t i = 0; i < self_.regions.num_regions; ++i) {
      const KvLayerGeometry& layer = self_.geometry.layers[i];
      metadata.base_addresses.push_back(reinterpret_cast<std::uint64_t>(memory_.data()));
      metadata.block_lens.push_back(
          static_cast<std::uint64_t>(block_bytes(layer, 16, layer.heads / options_.num_ranks)));
    }
    metadata.block_strides = metadata.block_lens;
    metadata.num_blocks = 1;
    metadata.layout = self_.profile.layout;
    metadata.block_size = 16;
    metadata.attention_backend = "FLASH_ATTN";
    if (options_.is_quire) {
      KvWelcome welcome;
      welcome.protocol = options_.protocol;
      welcome.engine = metadata.engine;
      welcome.geometry = self_.geometry;
      metadata.quire =
          QuireExtension{encode_kv(welcome), reinterpret_cast<std::uint64_t>(memory_.data())};
    }
    return {encode_handshake({compatibility_hash(self_.factors, self_.profile),
                              encode_metadata(metadata, self_.profile)}),
            encode_clock(1)};
  }

  const NixlSelf self_;
  const Options options_;
  NixlAgent agent_;
  std::vector<std::byte> memory_;
  std::deque<std::vector<std::byte>> more_memory_;
  SideChannel channel_;
  std::uint16_t port_ = 0;
  std::atomic<bool> stopping_ = false, registers_again_ = false;
  std::atomic<int> num_asked_ = 0;
  std::thread thread_;
};

}  // namespace quire::test
