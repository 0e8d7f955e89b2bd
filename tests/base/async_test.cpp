#include "base/async.h"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <catch2/catch.hpp>
#include <stdexcept>
#include <thread>

using namespace quire;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

namespace {

// Says in `ended` how it ended: 'e' by itself, 'c' cancelled.
awaitable<void> sleeper(std::chrono::milliseconds duration, std::string& ended) {
  try {
    co_await sleep_for(duration);
    ended += 'e';
  } catch (...) {
    ended += is_cancellation(std::current_exception()) ? 'c' : '?';
    throw;
  }
}

awaitable<void> failing(std::chrono::milliseconds after) {
  co_await sleep_for(after);
  throw std::runtime_error("broken");
}

awaitable<void> race_winner(int& winner, std::string& ended) {
  winner = co_await first_of(sleeper(2h, ended), sleeper(5ms, ended));
}

awaitable<void> race_failure(std::string& what, std::string& other) {
  try {
    co_await first_of(failing(5ms), sleeper(2h, other));
  } catch (const std::exception& e) {
    what = e.what();
  }
}

awaitable<void> timeouts(std::string& ended) {
  const bool late = co_await with_timeout(5ms, sleeper(2h, ended));
  const bool in_time = co_await with_timeout(2h, sleeper(5ms, ended));
  ended += late ? "?" : "L";
  ended += in_time ? "T" : "?";
}

awaitable<void> cancelled_race(std::string& ended) {
  co_await with_timeout(5ms, [](std::string& both) -> awaitable<void> {
    co_await first_of(sleeper(2h, both), sleeper(2h, both));
  }(ended));
}

awaitable<void> hop(asio::any_io_executor worker, std::thread::id& there, bool& came_home,
                    std::string& error) {
  const auto here = std::this_thread::get_id();
  co_await run_on(worker, [&] { there = std::this_thread::get_id(); });
  came_home = std::this_thread::get_id() == here;
  try {
    co_await run_on(worker, [] { throw std::runtime_error("from afar"); });
  } catch (const std::exception& e) {
    error = e.what();
  }
}

// Many coroutines race many times on several threads: what TSan looks at.
awaitable<void> racing(int rounds, std::atomic<int>& wins) {
  for (int i = 0; i < rounds; ++i) {
    wins += co_await first_of(sleep_for(1h), sleep_for(std::chrono::microseconds(i % 7)));
  }
}

}  // namespace

TEST_CASE("first_of ends with the first and cancels the other", "[base][async]") {
  int winner = -1;
  std::string ended;
  run(1, [&](asio::any_io_executor) { return race_winner(winner, ended); });
  CHECK(winner == 1);
  CHECK(ended == "ec");
}

TEST_CASE("first_of ends at once when the first one throws", "[base][async]") {
  std::string what, other;
  const auto start = Clock::now();
  run(1, [&](asio::any_io_executor) { return race_failure(what, other); });
  CHECK(what == "broken");
  CHECK(other == "c");
  CHECK(Clock::now() - start < 1min);
}

TEST_CASE("a deadline cancels a task that is late and leaves one that is not", "[base][async]") {
  std::string ended;
  run(1, [&](asio::any_io_executor) { return timeouts(ended); });
  CHECK(ended == "ceLT");
}

TEST_CASE("cancelling a race cancels both sides", "[base][async]") {
  std::string ended;
  run(1, [&](asio::any_io_executor) { return cancelled_race(ended); });
  CHECK(ended == "cc");
}

TEST_CASE("work on another executor runs there, comes home and brings its error", "[base][async]") {
  asio::thread_pool workers(1);
  std::thread::id there;
  bool came_home = false;
  std::string error;
  run(1,
      [&](asio::any_io_executor) { return hop(workers.get_executor(), there, came_home, error); });
  CHECK(there != std::this_thread::get_id());
  CHECK(came_home);
  CHECK(error == "from afar");
}

TEST_CASE("a context outlives what its jobs elsewhere hold of it", "[base][async]") {
  asio::thread_pool worker(1);
  int num_run = 0;
  for (int i = 0; i < 1000; ++i) {
    run(1, [&](asio::any_io_executor) {
      return run_on(worker.get_executor(), [&num_run] { ++num_run; });
    });
  }
  CHECK(num_run == 1000);
}

TEST_CASE("run rethrows what its root threw", "[base][async]") {
  CHECK_THROWS_WITH(run(2, [](asio::any_io_executor) { return failing(1ms); }), "broken");
}

TEST_CASE("races on several threads all have one winner", "[base][async]") {
  std::atomic<int> wins = 0;
  run(3, [&](asio::any_io_executor) { return racing(200, wins); });
  CHECK(wins == 200);
}
