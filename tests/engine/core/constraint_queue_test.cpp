// Grammars that take long to compile keep those of others waiting a short time only; a refusal is
// found once.

#include "engine/core/constraint_queue.h"

#include <catch2/catch.hpp>
#include <condition_variable>
#include <future>
#include <map>

#include "tests/support/fake_constraint.h"

namespace quire::test {
namespace {

ConstraintSpec spec(const std::string& text) { return {ConstraintKind::choice, text}; }

// A compiler for which texts with "slow" need all the time there is, and a gate to open.
struct Compiler {
  std::promise<void> may_go;
  std::shared_future<void> gate = may_go.get_future().share();
  std::mutex mutex;
  std::vector<std::string> begun;
  std::atomic<int> woken = 0;

  CompileConstraint function() {
    return [this](const ConstraintSpec& spec, const Slice& slice) {
      {
        const std::lock_guard lock(mutex);
        begun.push_back(spec.text);
      }
      const bool is_slow = spec.text.starts_with("slow");
      if (is_slow && slice.work != std::chrono::nanoseconds::max()) throw OutOfTime();
      if (is_slow) gate.wait();
      return compile_fake(is_slow ? ConstraintSpec{spec.kind, "5"} : spec, slice);
    };
  }
  auto count(const std::string& text) {
    const std::lock_guard lock(mutex);
    return std::ranges::count(begun, text);
  }
};

using Results = std::map<RequestId, ConstraintQueue::Done>;

void wait_for(ConstraintQueue& queue, Results& results, std::size_t count) {
  for (int i = 0; results.size() < count; ++i) {
    REQUIRE(i < 60'000);
    for (auto& done : queue.take()) results.emplace(done.request, done);
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
}

TEST_CASE("grammars that take long hold up no others", "[engine][core][constraint]") {
  Compiler compiler;
  ConstraintQueue queue(compiler.function(), [] {});
  Results results;
  for (std::uint64_t i = 0; i < 5; ++i) {
    queue.add(RequestId{100 + i}, 1, spec("slow " + std::to_string(i)));
  }
  for (std::uint64_t i = 0; i < 20; ++i) {
    queue.add(RequestId{1 + i}, 2, spec(std::to_string(i + 5)));
    wait_for(queue, results, i + 1);
  }
  CHECK(results.size() == 20);
  compiler.may_go.set_value();
  wait_for(queue, results, 25);
  CHECK(results.at(RequestId{104}).constraint != nullptr);
}

TEST_CASE("a refusal is found once", "[engine][core][constraint]") {
  Compiler compiler;
  ConstraintQueue queue(compiler.function(), [] {});
  Results results;
  for (std::uint64_t i = 1; i <= 3; ++i) {
    queue.add(RequestId{i}, 1, spec("wrong"));
    wait_for(queue, results, i);
    CHECK(results.at(RequestId{i}).constraint == nullptr);
    CHECK(results.at(RequestId{i}).error.code == ErrorCode::invalid_argument);
  }
  CHECK(compiler.count("wrong") == 1);
}

// Whoever asks for much is held after a few until the other's one was begun: without turns it never
// is, however the machine shares its cores.
TEST_CASE("clients take turns at the compiler", "[engine][core][constraint]") {
  std::promise<void> may_go;
  const std::shared_future<void> gate = may_go.get_future().share();
  std::mutex mutex;
  std::condition_variable begun;
  bool is_others_turn = false;
  int ahead = 0, impatient = 0;
  const CompileConstraint compile = [&](const ConstraintSpec& spec, const Slice& slice) {
    gate.wait();
    std::unique_lock lock(mutex);
    if (spec.text == "77") {
      is_others_turn = true;
      begun.notify_all();
    } else if (++ahead > 4) {
      impatient +=
          begun.wait_for(lock, std::chrono::seconds(10), [&] { return is_others_turn; }) ? 0 : 1;
    }
    lock.unlock();
    return compile_fake(spec, slice);
  };
  ConstraintQueue queue(compile, [] {});
  for (std::uint64_t i = 0; i < 20; ++i)
    queue.add(RequestId{i + 1}, 1, spec(std::to_string(i + 5)));
  queue.add(RequestId{50}, 2, spec("77"));
  may_go.set_value();
  Results results;
  wait_for(queue, results, 21);
  CHECK(impatient == 0);
}

TEST_CASE("who has waited too long for a grammar is told to try again", "[engine][core][constraint]") {
  Compiler compiler;
  ConstraintQueue queue(compiler.function(), [] {}, std::chrono::milliseconds(200));
  Results results;
  // The first holds the thread for long ones until it is told to stop, the second waits behind it.
  queue.add(RequestId{1}, 1, spec("slow 1"));
  queue.add(RequestId{2}, 1, spec("slow 2"));
  wait_for(queue, results, 2);
  for (const std::uint64_t i : {1, 2}) {
    const auto& done = results.at(RequestId{i});
    CHECK(done.constraint == nullptr);
    CHECK(done.error.code == ErrorCode::overloaded);
    CHECK(done.error.detail.find("try again") != std::string::npos);
  }
  // Nobody is in the way of others meanwhile, and what was given up is no refusal for good.
  std::uint64_t next = 3;
  const auto comes_at_last = [&](const char* text) {
    for (int i = 0; i < 100; ++i, ++next) {
      queue.add(RequestId{next}, 2, spec(text));
      wait_for(queue, results, next);
      if (results.at(RequestId{next}).constraint != nullptr) return ++next > 0;
    }
    return false;
  };
  CHECK(comes_at_last("7"));
  compiler.may_go.set_value();
  CHECK(comes_at_last("slow 1"));
}

}  // namespace
}  // namespace quire::test
