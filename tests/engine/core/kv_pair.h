#pragma once
// Two engines that the test steps by hand: one prefills, the other goes on.

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "tests/engine/core/stepped_engine.h"

namespace quire::test {

// Small, in full precision and deterministic; block size 0 is the model's own choice.
inline EngineConfig kv_config(const std::filesystem::path& model, int block_size = 0) {
  EngineConfig config;
  config.model.path = model.string();
  config.model.dtype = DType::f32;
  config.model.max_model_len = 256;
  config.cache.kv_cache_memory_bytes = std::int64_t{64} << 20;
  config.cache.block_size = block_size;
  config.scheduler.max_num_seqs = 8;
  config.scheduler.max_num_batched_tokens = 96;
  config.deterministic = true;
  config.cpu_threads = 1;
  return config;
}

// Steps until nothing is left to do, asleep while everyone waits for the network.
inline void run_awaiting(SteppedEngine& engine) {
  while (engine.core.has_work()) {
    engine.step();
    if (engine.core.is_idle()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

inline constexpr const char* kAskForKeeping =
    R"({"do_remote_decode": true, "do_remote_prefill": false, "remote_engine_id": null,
        "remote_block_ids": null, "remote_host": null, "remote_port": null})";

class KvPair {
 public:
  // Adds the roles; peers beside the prefilling engine's own address: those of `decode`.
  KvPair(EngineConfig prefill, EngineConfig decode, const BackendFactory& backend = cpu_backend)
      : prefill_config(with_role(std::move(prefill), KvRole::prefill)),
        decode_config(with_role(std::move(decode), KvRole::decode)),
        prefilling(std::make_unique<SteppedEngine>(prefill_config, backend)),
        decoding(std::make_unique<SteppedEngine>(decode_config, backend)) {}

  // What the prefilling engine's answer says; empty: it keeps nothing.
  std::string prefill_params(const std::vector<TokenId>& prompt) {
    AddRequest request = greedy_request(prompt, 1);
    request.transfer_params = kAskForKeeping;
    return prefilling->finish(std::move(request)).transfer_params;
  }

  RequestOutput decode(const AddRequest& wanted, std::string params) {
    AddRequest request = wanted;
    request.transfer_params = std::move(params);
    const RequestId id = decoding->add(std::move(request));
    run_awaiting(*decoding);
    return decoding->outputs[id];
  }

  RequestOutput ask(const AddRequest& wanted) {
    return decode(wanted, prefill_params(wanted.prompt));
  }

  // What a proxy knows of the prefilling engine from an answer before.
  int prefill_port() {
    const std::string params = prefill_params({3, 4, 5});
    constexpr std::string_view kMember = "\"remote_port\":";
    return std::stoi(params.substr(params.find(kMember) + kMember.size()));
  }
  static std::string keep_pushed(const std::string& name) {
    return R"({"do_remote_decode": true, "transfer_mode": "push", "remote_request_id": ")" + name +
           "\"}";
  }
  static std::string fetch_pushed(const std::string& name, int port) {
    return R"({"do_remote_prefill": true, "transfer_mode": "push", "remote_host": "127.0.0.1",
               "remote_request_id": ")" +
           name + R"(", "remote_port":)" + std::to_string(port) + R"(, "tp_size": 1})";
  }
  // Both engines at once: the one computes the prompt, the other waits for it.
  RequestOutput ask_pushed(const AddRequest& wanted, const std::string& name, int port) {
    AddRequest prefill = greedy_request(wanted.prompt, 1);
    prefill.transfer_params = keep_pushed(name);
    AddRequest decode = wanted;
    decode.transfer_params = fetch_pushed(name, port);
    const RequestId id = decoding->add(std::move(decode));
    prefilling->add(std::move(prefill));
    while (decoding->core.has_work() || prefilling->core.has_work()) {
      for (SteppedEngine* engine : {decoding.get(), prefilling.get()})
        if (engine->core.has_work()) engine->step();
      if (decoding->core.is_idle() && prefilling->core.is_idle())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return decoding->outputs[id];
  }

  KvTransferStats sent() const { return prefilling->core.stats().kv_transfer; }
  KvTransferStats received() const { return decoding->core.stats().kv_transfer; }
  std::int64_t losses() const {
    std::int64_t sum = 0;
    for (const KvLoss& loss : received().losses) sum += loss.requests;
    return sum;
  }
  std::int64_t losses(KvLossReason reason) const {
    return received().losses.at(static_cast<std::size_t>(reason)).requests;
  }

  const EngineConfig prefill_config, decode_config;
  std::unique_ptr<SteppedEngine> prefilling, decoding;

 private:
  static EngineConfig with_role(EngineConfig config, KvRole role) {
    config.kv_transfer.role = role;
    if (role == KvRole::prefill && config.kv_transfer.listen.empty())
      config.kv_transfer.listen = "127.0.0.1:0";
    if (role == KvRole::decode) config.kv_transfer.peers.push_back({"127.0.0.1"});
    return config;
  }
};

}  // namespace quire::test
