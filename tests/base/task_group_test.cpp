#include "base/task_group.h"

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_state.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/this_coro.hpp>
#include <catch2/catch.hpp>
#include <stdexcept>

using namespace quire;
using namespace std::chrono_literals;

namespace {

struct Tally {
  std::atomic<int> ended = 0;
  std::atomic<int> cancelled = 0;
};

awaitable<void> sleeper(std::chrono::milliseconds duration, Tally& tally) {
  try {
    co_await sleep_for(duration);
    ++tally.ended;
  } catch (...) {
    ++tally.cancelled;
    throw;
  }
}

awaitable<void> failing() {
  co_await sleep_for(1ms);
  throw std::runtime_error("one task's own trouble");
}

// Leaves when asked to finish up, like a connection between two requests.
awaitable<void> idle_connection(Tally& tally) {
  co_await asio::this_coro::reset_cancellation_state(asio::enable_total_cancellation());
  co_await sleeper(2h, tally);
}

awaitable<void> close_cancels(Tally& tally) {
  TaskGroup group(co_await asio::this_coro::executor);
  group.spawn(sleeper(2h, tally));
  group.spawn(sleeper(2h, tally));
  group.spawn(sleeper(1ms, tally));
  co_await sleep_for(20ms);
  CHECK(group.size() == 2);
  co_await group.close();
  CHECK(group.size() == 0);
}

awaitable<void> failure_stays_alone(Tally& tally) {
  TaskGroup group(co_await asio::this_coro::executor);
  group.spawn(failing());
  group.spawn(sleeper(20ms, tally));
  co_await group.wait();
}

awaitable<void> two_ways_to_stop(Tally& busy, Tally& idle) {
  TaskGroup group(co_await asio::this_coro::executor);
  group.spawn(sleeper(2h, busy));
  group.spawn(idle_connection(idle));
  co_await sleep_for(1ms);
  group.cancel(Cancel::finish);
  co_await sleep_for(20ms);
  CHECK(idle.cancelled == 1);
  CHECK(busy.cancelled == 0);
  group.cancel(Cancel::now);
  co_await group.wait();
}

awaitable<void> many_strands(asio::any_io_executor pool, Tally& tally) {
  TaskGroup group(co_await asio::this_coro::executor);
  for (int i = 0; i < 300; ++i) {
    group.spawn_on(asio::make_strand(pool), sleeper(std::chrono::milliseconds(i % 3), tally));
    group.spawn_on(asio::make_strand(pool), sleeper(2h, tally));
  }
  co_await sleep_for(5ms);
  co_await group.close();
}

awaitable<void> joining(Tally& tally) {
  TaskGroup group(co_await asio::this_coro::executor);
  group.spawn(sleeper(2h, tally));
  group.spawn(sleeper(1ms, tally));
  co_await group.join();
}

awaitable<void> join_with_deadline(Tally& tally, bool& in_time) {
  in_time = co_await with_timeout(20ms, joining(tally));
}

awaitable<void> wait_with_deadline(Tally& tally, bool& in_time) {
  TaskGroup group(co_await asio::this_coro::executor);
  group.spawn(sleeper(2h, tally));
  in_time = co_await with_timeout(5ms, group.wait());
  co_await group.close();
}

}  // namespace

TEST_CASE("close cancels what still runs and waits for it", "[base][task_group]") {
  Tally tally;
  run(1, [&](asio::any_io_executor) { return close_cancels(tally); });
  CHECK(tally.ended == 1);
  CHECK(tally.cancelled == 2);
}

TEST_CASE("a task that throws ends alone", "[base][task_group]") {
  Tally tally;
  run(1, [&](asio::any_io_executor) { return failure_stays_alone(tally); });
  CHECK(tally.ended == 1);
}

TEST_CASE("finish reaches only those that asked for it, now reaches all", "[base][task_group]") {
  Tally busy, idle;
  run(1, [&](asio::any_io_executor) { return two_ways_to_stop(busy, idle); });
  CHECK(busy.cancelled == 1);
}

TEST_CASE("tasks on their own strands end with their group", "[base][task_group]") {
  Tally tally;
  run(3, [&](asio::any_io_executor pool) { return many_strands(pool, tally); });
  CHECK(tally.ended + tally.cancelled == 600);
  CHECK(tally.cancelled >= 300);
}

TEST_CASE("waiting for a group can have a deadline", "[base][task_group]") {
  Tally tally;
  bool in_time = true;
  run(1, [&](asio::any_io_executor) { return wait_with_deadline(tally, in_time); });
  CHECK_FALSE(in_time);
  CHECK(tally.cancelled == 1);
}

TEST_CASE("who joins a group and is cancelled takes its tasks along", "[base][task_group]") {
  Tally tally;
  bool in_time = true;
  run(1, [&](asio::any_io_executor) { return join_with_deadline(tally, in_time); });
  CHECK_FALSE(in_time);
  CHECK(tally.ended == 1);
  CHECK(tally.cancelled == 1);
}
