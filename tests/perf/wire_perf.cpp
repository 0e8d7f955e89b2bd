// What the line between an engine and its front end costs per step: in one process, over a Unix
// socket, TCP, and TCP with TLS. One process plays both; a step comes every millisecond and carries
// a token of each of 64 requests.
//
//   wire_perf [requests] [steps] [rounds]
//
// engine: CPU time of the engine's own thread in publish() and take(), which delays its steps.
// all: CPU time of the process per step, both ends and their threads. arrives: from publish() to
// the front end's take(), half of the steps and 99 of 100. Medians over alternating rounds.

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "engine/wire/in_process_channel.h"
#include "engine/wire/socket_channel.h"
#include "tests/engine/wire/certificates.h"

namespace quire::test {
namespace {

using std::chrono::microseconds;

double cpu_microseconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

struct Line {
  std::unique_ptr<EngineEnd> engine;
  std::unique_ptr<ClientEnd> client;
};

Line over_socket(const SocketAddress& address, std::shared_ptr<const TlsContext> accepts,
                 std::shared_ptr<const TlsContext> dials) {
  Line line;
  line.engine = make_socket_engine_end(
      {.socket = {.secret = "a secret", .tls = std::move(accepts)}, .listen = address});
  line.client = make_socket_client_end(address, {.secret = "a secret", .tls = std::move(dials)});
  return line;
}

SocketAddress tcp_address() {
  auto probe = listen_at(*parse_socket_address("tcp://127.0.0.1:0"));
  return {{}, "127.0.0.1", port_of(*probe)};
}

// The front end's side: wakes when told, notes when each step came.
class Reader {
 public:
  Reader(ClientEnd& client, int steps) : client_(client), arrived_(static_cast<std::size_t>(steps)) {
    client_.on_events([this] {
      const std::lock_guard lock(mutex_);
      told_ = true;
      wake_.notify_one();
    });
  }
  void shake_hands(EngineEnd& engine, const std::vector<RequestId>& ids) {
    engine.publish(Hello{EngineId{0}, "perf"});
    until([](const EngineEvent& event) { return std::holds_alternative<Hello>(event); });
    std::vector<Command> commands;
    const auto pass = [&](Command command) {
      if (!client_.send(command)) throw Failure(ErrorCode::internal, "not sent");
      for (commands.clear(); commands.empty();) engine.wait_and_take(commands);
    };
    pass(Configure{"perf", {}});
    engine.publish(Ready{});
    until([](const EngineEvent& event) { return std::holds_alternative<Ready>(event); });
    for (const RequestId id : ids) {
      AddRequest add;
      add.id = id;
      add.prompt = {1};
      pass(add);
      inside.push_back(std::get<AddRequest>(commands.front()).id);
    }
  }
  void read_steps() {
    std::size_t step = 0;
    until([&](const EngineEvent& event) {
      if (std::holds_alternative<StepOutput>(event)) arrived_[step++] = Clock::now();
      return step == arrived_.size();
    });
  }
  const std::vector<Clock::time_point>& arrived() const { return arrived_; }
  std::vector<RequestId> inside;

 private:
  void until(const std::function<bool(const EngineEvent&)>& is_last) {
    while (true) {
      events_.clear();
      client_.take(events_);
      for (const EngineEvent& event : events_) {
        if (is_last(event)) return;
      }
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, microseconds(100'000), [this] { return told_; });
      told_ = false;
    }
  }

  ClientEnd& client_;
  std::vector<Clock::time_point> arrived_;
  std::vector<EngineEvent> events_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool told_ = false;
};

struct Cost {
  double engine = 0, all = 0, half = 0, most = 0;  // µs
};

Cost measure(Line line, int requests, int steps) {
  Reader reader(*line.client, steps);
  std::vector<RequestId> ids;
  for (int i = 0; i < requests; ++i) ids.push_back(RequestId{static_cast<std::uint64_t>(i) + 1});
  reader.shake_hands(*line.engine, ids);
  std::thread thread([&] { reader.read_steps(); });
  std::vector<Clock::time_point> sent;
  std::vector<Command> commands;
  double engine = 0;
  const double all_before = cpu_microseconds(CLOCK_PROCESS_CPUTIME_ID);
  auto next = Clock::now();
  for (int i = 0; i < steps; ++i) {
    StepOutput step;
    for (const RequestId id : reader.inside) step.tokens.push_back({id, i});
    step.time = Clock::now();
    sent.push_back(step.time);
    const double before = cpu_microseconds(CLOCK_THREAD_CPUTIME_ID);
    line.engine->publish(std::move(step));
    line.engine->take(commands);
    engine += cpu_microseconds(CLOCK_THREAD_CPUTIME_ID) - before;
    next += microseconds(1000);
    std::this_thread::sleep_until(next);
  }
  thread.join();
  Cost cost{engine / steps, (cpu_microseconds(CLOCK_PROCESS_CPUTIME_ID) - all_before) / steps};
  std::vector<double> delays;
  for (std::size_t i = 0; i < sent.size(); ++i)
    delays.push_back(
        std::chrono::duration<double, std::micro>(reader.arrived()[i] - sent[i]).count());
  std::ranges::sort(delays);
  cost.half = delays[delays.size() / 2];
  cost.most = delays[delays.size() * 99 / 100];
  line.client.reset();
  return cost;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void run(int requests, int steps, int rounds) {
  const Certificates files;
  const auto accepts = *TlsContext::make({files.certificate(), files.key(), {}});
  const auto dials = *TlsContext::make({{}, {}, files.authority()});
  const auto unix_address =
      *parse_socket_address("unix:/tmp/quire_wire_perf_" + std::to_string(::getpid()));
  const std::vector<std::pair<std::string, std::function<Line()>>> lines{
      {"in process",
       [] {
         ChannelEnds ends = make_in_process_channel();
         return Line{std::move(ends.engine), std::move(ends.client)};
       }},
      {"Unix socket", [&] { return over_socket(unix_address, nullptr, nullptr); }},
      {"TCP", [] { return over_socket(tcp_address(), nullptr, nullptr); }},
      {"TCP with TLS", [&] { return over_socket(tcp_address(), accepts, dials); }}};
  std::map<std::string, std::vector<Cost>> costs;
  for (int round = 0; round < rounds; ++round) {
    for (const auto& [name, make] : lines) costs[name].push_back(measure(make(), requests, steps));
  }
  fmt::print("{} requests, {} steps, {} rounds; microseconds per step\n", requests, steps, rounds);
  fmt::print("{:<14} {:>8} {:>8} {:>10} {:>10}\n", "line", "engine", "all", "arrives", "99 %");
  for (const auto& [name, make] : lines) {
    const auto of = [&, &all = costs[name]](double Cost::*field) {
      std::vector<double> values;
      for (const Cost& cost : all) values.push_back(cost.*field);
      return median(values);
    };
    fmt::print("{:<14} {:>8.1f} {:>8.1f} {:>10.1f} {:>10.1f}\n", name, of(&Cost::engine),
               of(&Cost::all), of(&Cost::half), of(&Cost::most));
  }
  ::unlink(unix_address.path.c_str());
}

}  // namespace
}  // namespace quire::test

int main(int argc, char** argv) {
  const auto number = [&](int index, int otherwise) {
    return argc > index ? std::atoi(argv[index]) : otherwise;
  };
  quire::test::run(number(1, 64), number(2, 3000), number(3, 5));
  return 0;
}
