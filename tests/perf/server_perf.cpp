// What the HTTP side costs by itself, with an engine that computes nothing: CPU time of the one I/O
// thread per event of a stream, per chat request and per bare request, and what a second of that
// thread could carry. Goals: 150 000 events, 50 000 chat requests of one token.

#include <cstdio>
#include <thread>
#include <vector>

#include "base/log.h"
#include "tests/support/http_client.h"
#include "tests/support/test_server.h"

namespace quire::test {
namespace {

constexpr const char* kChat = "/v1/chat/completions";

TestServerOptions perf_options(std::chrono::microseconds step_time) {
  TestServerOptions options;
  options.io_threads = 1;
  options.engine.eos.reset();
  options.engine.max_num_seqs = 1024;
  options.engine.step_time = step_time;
  return options;
}

std::int64_t count(std::string_view text, std::string_view what) {
  std::int64_t n = 0;
  for (auto at = text.find(what); at != text.npos; at = text.find(what, at + what.size())) ++n;
  return n;
}

// Runs the client on `num_clients` threads; gives their sum.
template <class Client>
std::int64_t run_clients(int num_clients, Client client) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(num_clients));
  std::vector<std::thread> threads;
  for (auto& n : counts) threads.emplace_back([&n, &client] { n = client(); });
  for (auto& thread : threads) thread.join();
  std::int64_t sum = 0;
  for (const auto n : counts) sum += n;
  return sum;
}

template <class Client>
void measure(const char* name, const char* unit, int num_clients,
             std::chrono::microseconds step_time, Client client) {
  TestServer server(perf_options(step_time));
  run_clients(1, [&] { return client(server.port()); });  // warm
  const auto before = server.io_thread_time();
  const auto n = run_clients(num_clients, [&] { return client(server.port()); });
  const double seconds = std::chrono::duration<double>(server.io_thread_time() - before).count();
  std::printf("%-34s %8.2f us per %-8s %10.0f a core-second\n", name,
              1e6 * seconds / static_cast<double>(n), unit, static_cast<double>(n) / seconds);
}

std::int64_t stream(int port) {
  HttpClient client(port);
  client.send(post_request(kChat, chat_body(R"("stream":true,"max_tokens":1000)")));
  std::string text;
  while (text.find("[DONE]") == text.npos) {
    const std::string more = client.receive_some();
    if (more.empty()) break;
    text += more;
  }
  return count(text, "data: ");
}

std::int64_t ask(int port) {
  HttpClient client(port);
  const std::string prompt(800, 'a');
  for (int i = 0; i < 500; ++i) {
    client.send(post_request(kChat, chat_body(R"("max_tokens":1)", prompt)));
    if (client.receive()->status != 200) return 0;
  }
  return 500;
}

std::int64_t probe(int port) {
  HttpClient client(port);
  for (int i = 0; i < 5000; ++i) {
    client.send(get_request("/version"));
    client.receive();
  }
  return 5000;
}

}  // namespace
}  // namespace quire::test

int main() {
  using namespace quire::test;
  using std::chrono::microseconds;
  quire::log::configure(quire::log::Format::text, quire::log::Level::warn);
  measure("64 streams, an event per token", "event", 64, microseconds(4000), stream);
  measure("64 streams, as fast as it goes", "event", 64, microseconds(0), stream);
  measure("chat of one token, 16 clients", "request", 16, microseconds(0), ask);
  measure("bare request, 8 clients", "request", 8, microseconds(0), probe);
  return 0;
}
