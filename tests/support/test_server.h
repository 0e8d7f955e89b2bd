#pragma once
// A whole server on a port of its own, with a FakeEngine behind it and quire-tiny's tokenizer and
// chat template in front.

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "server/server.h"
#include "tests/support/fake_engine.h"

namespace quire::test {

struct TestServerOptions {
  FakeEngineOptions engine{};
  ServerConfig config{};
  EngineConfig engine_config{};  // as the server knows it; the fake engine reads none of it
  TextDefaults defaults{};
  bool wait_until_ready = true;
  int io_threads = 2;

  TestServerOptions();
};

class TestServer {
 public:
  explicit TestServer(TestServerOptions options = {});
  ~TestServer();  // stops it

  int port() const { return port_; }
  FakeEngine& engine() { return *engine_; }
  const Tokenizer& tokenizer() const { return text_->tokenizer(); }
  EngineGroupState state() const { return engines_->state(); }

  // CPU time of the first I/O thread, which is all of them where there is one.
  std::chrono::nanoseconds io_thread_time();

  void stop() { ++stops_wanted_; }  // as SIGTERM does; twice: now
  void wait_for_end();              // rethrows what ended it

 private:
  awaitable<void> next_stop();
  awaitable<void> root(asio::any_io_executor pool);
  void run_thread();

  TestServerOptions options_;
  std::unique_ptr<FakeEngine> engine_;
  std::unique_ptr<const TextPipeline> text_;
  EngineGroup* engines_ = nullptr;
  std::atomic<int> stops_wanted_{0};
  int stops_seen_ = 0;
  std::promise<int> listening_;
  std::promise<void> ready_;
  std::promise<void> ended_;
  std::future<void> end_;
  int port_ = 0;
  std::thread thread_;
};

// An engine whose every answer is `text`, a token a step, then the end token.
TestServerOptions answering(const std::string& text);
const Tokenizer& tiny_tokenizer();

// Waits until the condition holds; false after a generous while.
bool eventually(const std::function<bool()>& condition);

std::string chat_body(const std::string& more_members = {}, const std::string& content = "Hi");

}  // namespace quire::test
