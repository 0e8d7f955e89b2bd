// Grammars that take long to compile keep those of others waiting a short time only; a refusal is
// found once.

#include "engine/core/constraint_queue.h"

#include <catch2/catch.hpp>
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
    REQUIRE(i < 20'000);
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

TEST_CASE("clients take turns at the compiler", "[engine][core][constraint]") {
  std::promise<void> may_go;
  const std::shared_future<void> gate = may_go.get_future().share();
  std::mutex mutex;
  std::vector<std::string> order;
  const CompileConstraint compile = [&](const ConstraintSpec& spec, const Slice& slice) {
    gate.wait();
    const std::lock_guard lock(mutex);
    order.push_back(spec.text);
    return compile_fake(spec, slice);
  };
  ConstraintQueue queue(compile, [] {});
  for (std::uint64_t i = 0; i < 20; ++i) queue.add(RequestId{i + 1}, 1, spec(std::to_string(i + 5)));
  queue.add(RequestId{50}, 2, spec("77"));
  may_go.set_value();
  Results results;
  wait_for(queue, results, 21);
  const auto at = std::ranges::find(order, "77") - order.begin();
  CHECK(at < 6);  // behind what had begun, and one turn of the other's
}

}  // namespace
}  // namespace quire::test
