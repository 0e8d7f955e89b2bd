// Masks are made beside the steps: the engine's thread gives up in time, others go on, and what one
// constraint takes long for keeps no other waiting.

#include "engine/structured/mask_queue.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <future>

#include "tests/support/fake_constraint.h"

namespace quire::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kWidth = 32;  // 1,024 tokens

// Until the gate opens no mask is made; who may not wait gives up.
class Gated final : public TokenConstraint {
 public:
  Gated(std::shared_future<void> gate, TokenSequences choices)
      : gate_(std::move(gate)), inner_(std::move(choices), {1}) {}
  void limit(const Slice& slice) override { slice_ = slice; }
  void fill(std::span<std::uint32_t> mask) const override {
    while (gate_.wait_for(1ms) != std::future_status::ready) {
      if (slice_.stop.stop_requested()) throw std::runtime_error("stopped");
      if (slice_.is_over()) throw OutOfTime();
      if (!slice_.waits || slice_.work != std::chrono::nanoseconds::max()) throw OutOfTime();
    }
    inner_.fill(mask);
  }
  bool accept(TokenId token) override { return inner_.accept(token); }
  void rollback(int num_tokens) override { inner_.rollback(num_tokens); }
  bool is_complete() const override { return inner_.is_complete(); }

 private:
  std::shared_future<void> gate_;
  Slice slice_;
  FakeConstraint inner_;
};

class Broken final : public TokenConstraint {
 public:
  void fill(std::span<std::uint32_t>) const override {
    throw Failure(Error{ErrorCode::invalid_argument, "too costly", "/place"});
  }
  bool accept(TokenId) override { return true; }
  void rollback(int) override {}
  bool is_complete() const override { return false; }
};

// Knows how the output goes on.
class Forced final : public TokenConstraint {
 public:
  explicit Forced(TokenSequences choices) : inner_(std::move(choices), {1}) {}
  void fill(std::span<std::uint32_t> mask) const override { inner_.fill(mask); }
  bool accept(TokenId token) override { return inner_.accept(token); }
  void rollback(int num_tokens) override { inner_.rollback(num_tokens); }
  bool is_complete() const override { return inner_.is_complete(); }
  std::vector<TokenId> forced_tokens(int most) override {
    return most > 1 ? std::vector<TokenId>{6, 7} : std::vector<TokenId>{6};
  }

 private:
  FakeConstraint inner_;
};

// Gives up so many times, whoever asks.
class Late final : public TokenConstraint {
 public:
  explicit Late(int times) : times_(times) {}
  void fill(std::span<std::uint32_t>) const override {
    std::this_thread::sleep_for(1ms);
    if (times_-- > 0) throw OutOfTime();
  }
  bool accept(TokenId) override { return true; }
  void rollback(int) override {}
  bool is_complete() const override { return false; }

 private:
  mutable int times_;
};

std::vector<TokenId> allowed(const NextMasks& next, int index) {
  std::vector<TokenId> tokens;
  const auto mask = next.mask(index, kWidth);
  for (TokenId token = 0; token < static_cast<TokenId>(kWidth * 32); ++token) {
    if (mask[static_cast<std::size_t>(token) / 32] >> token % 32 & 1) tokens.push_back(token);
  }
  return tokens;
}

std::unique_ptr<TokenConstraint> quick(TokenSequences choices) {
  return std::make_unique<FakeConstraint>(std::move(choices), std::vector<TokenId>{1});
}

template <class Ready>
void work_until(MaskQueue& queue, Ready ready) {
  for (int i = 0; !ready(); ++i) {
    REQUIRE(i < 20'000);
    queue.work(1ms);
    queue.take();
    std::this_thread::sleep_for(200us);
  }
}

// What so many jobs came to, by request: the engine's thread or a helper may be the one to make each.
std::vector<MaskQueue::Done> finished(MaskQueue& queue, std::size_t count) {
  std::vector<MaskQueue::Done> all;
  for (int i = 0; all.size() < count; ++i) {
    REQUIRE(i < 20'000);
    queue.work(1s);
    for (auto& done : queue.take()) all.push_back(std::move(done));
    if (all.size() < count) std::this_thread::sleep_for(200us);
  }
  std::ranges::sort(all, {}, &MaskQueue::Done::request);
  return all;
}

TEST_CASE("what is quick is made by who asks, at once", "[structured][masks]") {
  MaskQueue queue(kWidth, [] {});
  const auto masks = queue.add(RequestId{1}, quick({{5, 6}, {7}}));
  CHECK_FALSE(masks->is_ready());
  CHECK(queue.num_open() == 1);
  REQUIRE(finished(queue, 1).size() == 1);
  REQUIRE(masks->is_ready());
  CHECK(queue.num_open() == 0);
  CHECK(allowed(masks->next(), 0) == std::vector<TokenId>{5, 7});
  CHECK(masks->next().count == 1);

  masks->advance(std::vector<TokenId>{5}, std::vector<TokenId>{6, 1, 9}, 3);
  CHECK_FALSE(masks->is_ready());
  finished(queue, 1);
  const NextMasks& next = masks->next();
  CHECK(next.drafts == std::vector<TokenId>{6, 1, 9});
  REQUIRE(next.count == 3);  // behind the end nothing is taken
  CHECK(allowed(next, 0) == std::vector<TokenId>{6});
  CHECK(allowed(next, 1) == std::vector<TokenId>{1});
  CHECK(allowed(next, 2).empty());
  CHECK(next.is_complete == std::vector<std::uint8_t>{0, 1, 1});
}

TEST_CASE("what a constraint knows takes the place of drafts", "[structured][masks]") {
  MaskQueue queue(kWidth, [] {});
  const auto masks = queue.add(RequestId{1}, std::make_unique<Forced>(TokenSequences{{5, 6, 7, 8}}));
  finished(queue, 1);
  masks->advance(std::vector<TokenId>{5}, std::vector<TokenId>{9}, 2);
  finished(queue, 1);
  CHECK(masks->next().drafts == std::vector<TokenId>{6, 7});
  CHECK(masks->next().count == 3);
  CHECK(allowed(masks->next(), 2) == std::vector<TokenId>{8});
}

TEST_CASE("a mask that is put aside again is made without anybody's asking", "[structured][masks]") {
  for (int i = 0; i < 20; ++i) {
    std::promise<void> told;
    std::atomic<bool> is_first = true;
    MaskQueue queue(kWidth, [&] {
      if (is_first.exchange(false)) told.set_value();
    });
    std::this_thread::sleep_for(2ms);  // its threads sleep
    const auto masks = queue.add(RequestId{1}, std::make_unique<Late>(2 + i % 3));
    queue.work(2ms);
    REQUIRE(told.get_future().wait_for(20s) == std::future_status::ready);
    CHECK(queue.take().size() == 1);
    CHECK(masks->is_ready());
  }
}

TEST_CASE("a mask is told of when others are taken while it is made", "[structured][masks]") {
  std::promise<void> may_go;
  std::atomic<int> woken = 0;
  MaskQueue queue(kWidth, [&] { ++woken; });
  const auto held = queue.add(RequestId{1}, std::make_unique<Gated>(may_go.get_future().share(), TokenSequences{{5}}));
  queue.work(1ms);
  const auto quick_one = queue.add(RequestId{2}, quick({{5}}));
  queue.work(1s);                         // is done, and not taken
  std::this_thread::sleep_for(50ms);      // the other is being made
  const int before = woken;
  CHECK(queue.take().size() == 1);
  may_go.set_value();
  for (int i = 0; i < 20'000 && woken == before; ++i) std::this_thread::sleep_for(1ms);
  CHECK(woken > before);
  CHECK(queue.take().size() == 1);
}

TEST_CASE("a mask that takes long keeps nobody else waiting", "[structured][masks]") {
  std::promise<void> may_go;
  const std::shared_future<void> gate = may_go.get_future().share();
  std::atomic<int> woken = 0;
  MaskQueue queue(kWidth, [&] { ++woken; });
  std::vector<std::unique_ptr<ConstraintMasks>> slow;
  for (std::uint64_t i = 0; i < 12; ++i) {
    slow.push_back(queue.add(RequestId{100 + i}, std::make_unique<Gated>(gate, TokenSequences{{5}})));
  }
  for (std::uint64_t i = 0; i < 200; ++i) {
    const auto one = queue.add(RequestId{1 + i}, quick({{5, 6}}));
    work_until(queue, [&] { return one->is_ready(); });
  }
  for (const auto& one : slow) CHECK_FALSE(one->is_ready());
  CHECK(queue.num_open() == slow.size());
  slow.resize(6);  // six have gone
  may_go.set_value();
  work_until(queue, [&] {
    return std::ranges::all_of(slow, [](const auto& one) { return one->is_ready(); });
  });
  CHECK(woken > 0);
  CHECK(queue.num_open() == 0);
}

TEST_CASE("who has waited too long for a mask is told to try again", "[structured][masks]") {
  std::promise<void> may_go;
  const std::shared_future<void> gate = may_go.get_future().share();
  MaskQueue queue(kWidth, [] {}, 2, 200ms);
  std::vector<std::unique_ptr<ConstraintMasks>> slow;  // one at work, others behind it
  for (std::uint64_t i = 0; i < 3; ++i) {
    slow.push_back(queue.add(RequestId{i}, std::make_unique<Gated>(gate, TokenSequences{{5}})));
  }
  std::size_t given_up = 0;
  for (int i = 0; given_up < slow.size(); ++i) {
    REQUIRE(i < 20'000);
    queue.work(1ms);
    for (const auto& done : queue.take()) {
      ++given_up;
      CHECK(done.has_failed);
      CHECK(done.error.code == ErrorCode::overloaded);
    }
    std::this_thread::sleep_for(200us);
  }
  CHECK(queue.num_open() == 0);
  may_go.set_value();
}

TEST_CASE("a constraint that fails is its request's error", "[structured][masks]") {
  MaskQueue queue(kWidth, [] {});
  const auto broken = queue.add(RequestId{3}, std::make_unique<Broken>());
  const auto wrong = queue.add(RequestId{4}, quick({{5}}));
  auto done = finished(queue, 2);
  CHECK(done[0].has_failed);
  CHECK(done[0].error.field == "/place");
  CHECK_FALSE(done[1].has_failed);
  CHECK_FALSE(broken->is_ready());
  wrong->advance(std::vector<TokenId>{9}, {}, 0);
  done = finished(queue, 1);
  CHECK(done[0].has_failed);
  CHECK(done[0].error.code == ErrorCode::internal);
}

}  // namespace
}  // namespace quire::test
