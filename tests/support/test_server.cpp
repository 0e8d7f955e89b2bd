#include "tests/support/test_server.h"

#include <pthread.h>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <ctime>
#include <vector>

namespace quire::test {

namespace {

constexpr const char* kModel = "models/quire-tiny";
constexpr TokenId kEndOfTurn = 1523;

}  // namespace

TestServerOptions::TestServerOptions() {
  engine.eos = kEndOfTurn;
  config.host = "127.0.0.1";
  config.port = 0;
  config.served_model_names = {"tiny", "other-name"};
  config.model_root = kModel;
  config.shutdown_timeout = std::chrono::seconds(20);
  config.keep_after_engine_death = true;
  defaults.eos_token_ids = {kEndOfTurn};
  defaults.reasoning = find_reasoning_format("think");
  defaults.dialect = find_dialect("hermes");
}

TestServer::TestServer(TestServerOptions options)
    : options_(std::move(options)),
      engine_(std::make_unique<FakeEngine>(options_.engine)),
      text_(std::make_unique<TextPipeline>(Tokenizer::load(kModel), ChatTemplate::load(kModel),
                                           options_.defaults)),
      end_(ended_.get_future()) {
  auto ready = ready_.get_future();
  auto listening = listening_.get_future();
  thread_ = std::thread([this] { run_thread(); });
  port_ = listening.get();
  if (options_.wait_until_ready) ready.get();
}

TestServer::~TestServer() {
  stops_wanted_ += 2;
  thread_.join();
}

std::chrono::nanoseconds TestServer::io_thread_time() {
  clockid_t clock;
  timespec time{};
  pthread_getcpuclockid(thread_.native_handle(), &clock);
  clock_gettime(clock, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

void TestServer::wait_for_end() { end_.get(); }

awaitable<void> TestServer::next_stop() {
  while (stops_wanted_ == stops_seen_) co_await sleep_for(std::chrono::milliseconds(1));
  ++stops_seen_;
}

awaitable<void> TestServer::root(asio::any_io_executor pool) {
  Metrics metrics({"tiny", "test", false});
  std::vector<std::unique_ptr<ClientEnd>> ends;
  ends.push_back(engine_->take_client_end());
  EngineGroup engines(pool, std::move(ends), options_.engine_config, {});
  engines_ = &engines;
  asio::thread_pool worker(1);
  ServerHooks hooks;
  hooks.on_listening = [this](const std::string& address) {
    listening_.set_value(std::stoi(address.substr(address.rfind(':') + 1)));
  };
  hooks.on_ready = [this](const std::string&) { ready_.set_value(); };
  co_await run_server(
      {options_.config, options_.engine_config, engines, *text_, metrics, pool, worker.get_executor()},
      hooks, [this] { return next_stop(); });
}

void TestServer::run_thread() {
  pthread_setname_np(pthread_self(), "io");
  try {
    run(options_.io_threads, [this](asio::any_io_executor pool) { return root(pool); });
    ended_.set_value();
  } catch (...) {
    ended_.set_exception(std::current_exception());
  }
}

const Tokenizer& tiny_tokenizer() {
  static const auto tokenizer = Tokenizer::load(kModel);
  return *tokenizer;
}

TestServerOptions answering(const std::string& text) {
  auto ids = tiny_tokenizer().encode(text, false);
  ids.push_back(kEndOfTurn);
  TestServerOptions options;
  options.engine.eos = kEndOfTurn;
  options.engine.next_token = [ids](const AddRequest&, int index) {
    return ids[std::min<std::size_t>(static_cast<std::size_t>(index), ids.size() - 1)];
  };
  return options;
}

bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 10'000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

std::string chat_body(const std::string& more_members, const std::string& content) {
  return R"({"messages":[{"role":"user","content":")" + content + "\"}]" +
         (more_members.empty() ? "" : "," + more_members) + "}";
}

}  // namespace quire::test
