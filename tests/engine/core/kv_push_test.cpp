// One engine computes a prompt and sends it as it does, to another that was asked at the same time:
// the tokens are those of one engine, whatever the model and the sizes of blocks.

#include <catch2/catch.hpp>
#include <random>

#include "tests/engine/core/kv_pair.h"
#include "tests/support/golden_folders.h"

namespace quire::test {
namespace {

AddRequest request_of(unsigned seed, int length) {
  std::mt19937 random(seed);
  std::vector<TokenId> prompt(static_cast<std::size_t>(length));
  for (TokenId& token : prompt) token = static_cast<TokenId>(3 + random() % 380);
  AddRequest request = greedy_request(std::move(prompt), 16);
  request.sampling.ignore_eos = true;
  return request;
}

std::string name_of(int number) { return "a request of a proxy " + std::to_string(number); }

// Over the lengths of several chunks, cold and with a part of the prompt on either side.
void check_lengths(const EngineConfig& prefill, const EngineConfig& decode,
                   const EngineConfig& alone_config) {
  KvPair pair(prefill, decode);
  SteppedEngine alone(alone_config);
  const int port = pair.prefill_port();
  int number = 0;
  for (const int length : {2, 15, 17, 64, 97, 130, 200, 200}) {
    AddRequest request = request_of(static_cast<unsigned>(length), length);
    if (length == 200 && number == 7) request.prompt.back() = 5;  // all but its end is here
    INFO("prompt of " << length << " tokens");
    CHECK(pair.ask_pushed(request, name_of(++number), port).token_ids ==
          alone.finish(request).token_ids);
  }
  CHECK(pair.losses() == 0);
  CHECK(pair.received().received == number);
}

}  // namespace

TEST_CASE("what one engine pushes another decodes, of every model", "[kv_transfer][push]") {
  for (const auto& model : golden_models()) {
    INFO(model);
    check_lengths(kv_config(model), kv_config(model), kv_config(model));
  }
}

TEST_CASE("pushes go between blocks of any two sizes", "[kv_transfer][push]") {
  const auto model = golden_models().front();
  for (const auto& [prefill, decode] : {std::pair(16, 64), std::pair(64, 16)})
    check_lengths(kv_config(model, prefill), kv_config(model, decode), kv_config(model, decode));
}

TEST_CASE("a push whose prefill is aborted is computed here", "[kv_transfer][push]") {
  const auto model = golden_models().front();
  KvPair pair(kv_config(model), kv_config(model));
  SteppedEngine alone(kv_config(model));
  const int port = pair.prefill_port();
  for (const int steps : {0, 1, 2}) {
    const AddRequest request = request_of(static_cast<unsigned>(steps + 1), 200);
    AddRequest prefill = greedy_request(request.prompt, 1);
    prefill.transfer_params = KvPair::keep_pushed(name_of(steps));
    const RequestId begun = pair.prefilling->add(std::move(prefill));
    for (int i = 0; i < steps; ++i) pair.prefilling->step();
    pair.prefilling->core.abort(begun);
    pair.prefilling->run();
    CHECK(pair.decode(request, KvPair::fetch_pushed(name_of(steps), port)).token_ids ==
          alone.finish(request).token_ids);
    CHECK(pair.losses(KvLossReason::refused) == steps + 1);
  }
}

TEST_CASE("a prefill of one token is told to whoever waits for its push", "[kv_transfer][push]") {
  EngineConfig prefill_config = kv_config(golden_models().front());
  prefill_config.kv_transfer.lease_seconds = 600;
  KvPair pair(prefill_config, kv_config(golden_models().front()));
  const int port = pair.prefill_port();
  AddRequest prefill = greedy_request({7}, 1);
  prefill.transfer_params = KvPair::keep_pushed(name_of(1));
  pair.prefilling->finish(std::move(prefill));
  const AddRequest request = request_of(1, 20);  // the proxy's other one has more tokens
  pair.decode(request, KvPair::fetch_pushed(name_of(1), port));
  CHECK(pair.losses(KvLossReason::refused) == 1);
}

TEST_CASE("a push for which there is no room is not kept", "[kv_transfer][push]") {
  EngineConfig small = kv_config(golden_models().front());
  small.kv_transfer.buffer_bytes = 4096;
  const EngineConfig other = kv_config(golden_models().front());
  KvPair pair(small, other);
  const AddRequest request = request_of(9, 150);
  AddRequest prefill = greedy_request(request.prompt, 1);
  prefill.transfer_params = KvPair::keep_pushed(name_of(1));
  const std::string said = pair.prefilling->finish(std::move(prefill)).transfer_params;
  CHECK(said.empty());
  CHECK(pair.sent().not_kept == 1);
}

}  // namespace quire::test
