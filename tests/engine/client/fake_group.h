#pragma once
// A group over fake engines, for the tests of this folder.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <memory>
#include <vector>

#include "base/async.h"
#include "engine/client/engine_group.h"
#include "engine/wire/channel.h"
#include "tests/support/fake_engine.h"

namespace quire::test {

struct FakeGroup {
  FakeGroup(asio::any_io_executor pool, std::vector<FakeEngineOptions> options,
            EngineGroupOptions group_options = {}, EngineConfig config = {},
            bool elsewhere = false) {
    std::vector<std::unique_ptr<ClientEnd>> ends;
    for (auto& one : options) {
      engines.push_back(std::make_unique<FakeEngine>(std::move(one)));
      ends.push_back(engines.back()->take_client_end());
    }
    if (!elsewhere) config.model.path = "here";
    group = std::make_unique<EngineGroup>(pool, std::move(ends), std::move(config), group_options);
  }

  std::vector<std::unique_ptr<FakeEngine>> engines;
  std::unique_ptr<EngineGroup> group;
};

inline AddRequest request_of(std::vector<TokenId> prompt, int max_tokens) {
  AddRequest request;
  request.prompt = std::move(prompt);
  request.sampling.max_tokens = max_tokens;
  return request;
}

awaitable<void> start(FakeGroup& fake);

// Polls until the condition holds; fails the test after five seconds.
awaitable<void> eventually(std::function<bool()> condition);

// All that next() gives.
awaitable<RequestOutput> read_to_end(Generation& generation);

}  // namespace quire::test
