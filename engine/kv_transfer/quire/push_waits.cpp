#include "engine/kv_transfer/quire/push_waits.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <map>
#include <utility>
#include <vector>

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kMostExpected = 1 << 14;  // over all lines
constexpr std::size_t kMostNames = 4 << 20;     // bytes of their names
constexpr std::size_t kMostKeyBytes = 1024;

struct Expected {
  KvKey prefill;
  Clock::time_point end;
};

class Attending {
 public:
  Attending(FrameLink& link, KeptPrefills& kept, ExpectedPushes& counted)
      : link_(link), kept_(kept), counted_(counted) {}
  ~Attending() {
    for (const auto& [stream, expected] : all_) discount(expected.prefill);
  }
  Attending(const Attending&) = delete;
  Attending& operator=(const Attending&) = delete;

  awaitable<void> take(KvFrameHeader header) {
    const std::string body = co_await link_.read_message(header);
    const auto expect = decode_kv<KvExpect>(body);
    if (header.type != KvFrameType::expect || !expect)
      throw KvLost(KvLossReason::corrupt, "another frame came on a line of pushes");
    if (const KvRefused refusal = objection_to(*expect); !refusal.detail.empty()) {
      const std::string text = encode_kv(refusal);
      co_await link_.send(KvFrameType::refused, header.stream, text);
      co_return;
    }
    rhythm_ = std::chrono::milliseconds(std::clamp(expect->alive_ms, 5, 10'000));
    const Clock::time_point end = Clock::now() + kept_.lease();
    if (const auto known = all_.find(header.stream); known != all_.end())
      discount(known->second.prefill);
    all_[header.stream] = {expect->prefill, end};
    ++counted_.names;
    counted_.bytes += expect->prefill.key.size();
    fresh_.push_back(header.stream);
    next_end_ = std::min(next_end_, end);
  }

  // Those that have begun, and those that will not. False: none is left. All are looked at only
  // where one may have: very many can be expected.
  awaitable<bool> tell() {
    const std::uint64_t changes = kept_.num_changes();
    std::vector<std::uint64_t> streams = std::exchange(fresh_, {});
    if (changes != num_changes_ || Clock::now() >= next_end_) {
      num_changes_ = changes;
      next_end_ = Clock::time_point::max();
      streams.clear();
      for (const auto& [stream, expected] : all_) {
        streams.push_back(stream);
        next_end_ = std::min(next_end_, expected.end);
      }
    }
    for (const std::uint64_t stream : streams) co_await look_at(stream);
    if (Clock::now() - last_sign_ >= rhythm_) {
      const std::string nothing;
      co_await link_.send(KvFrameType::alive, 0, nothing);
      last_sign_ = Clock::now();
    }
    co_return !all_.empty();
  }

  Clock::time_point until() const { return std::min(last_sign_ + rhythm_, next_end_); }

 private:
  KvRefused objection_to(const KvExpect& expect) const {
    const std::size_t bytes = expect.prefill.key.size();
    if (bytes > kMostKeyBytes)
      return {KvLossReason::refused,
              fmt::format("its name has {} bytes; {} is the most", bytes, kMostKeyBytes)};
    if (counted_.names >= kMostExpected || counted_.bytes + bytes > kMostNames)
      return {KvLossReason::no_room,
              fmt::format("{} prefills are expected here, with names of {} bytes; {} and {} are "
                          "the most",
                          counted_.names, counted_.bytes, kMostExpected, kMostNames)};
    return {};
  }
  void discount(const KvKey& prefill) {
    --counted_.names;
    counted_.bytes -= prefill.key.size();
  }
  awaitable<void> look_at(std::uint64_t stream) {
    const auto found = all_.find(stream);
    if (found == all_.end()) co_return;
    const Expected& expected = found->second;
    const auto prefill = kept_.find(expected.prefill.key, expected.prefill.generation);
    if (prefill == nullptr && Clock::now() < expected.end) co_return;
    discount(expected.prefill);
    all_.erase(found);
    co_await answer(stream, prefill.get());
    last_sign_ = Clock::now();
  }
  awaitable<void> answer(std::uint64_t stream, const KeptPrefill* prefill) {
    const bool has_begun = prefill != nullptr && prefill->range != nullptr;
    const std::string text = has_begun ? std::string() : encode_kv(refusal_of(prefill));
    co_await link_.send(has_begun ? KvFrameType::expected : KvFrameType::refused, stream, text);
  }

  FrameLink& link_;
  KeptPrefills& kept_;
  ExpectedPushes& counted_;
  std::map<std::uint64_t, Expected> all_;  // by stream
  std::vector<std::uint64_t> fresh_;       // of these, not looked at yet
  std::uint64_t num_changes_ = 0;          // of what is kept, when all were looked at
  Clock::time_point next_end_ = Clock::time_point::max();  // none ends before
  std::chrono::milliseconds rhythm_{};
  Clock::time_point last_sign_ = Clock::now();
};

}  // namespace

awaitable<void> attend_pushes(FrameLink& link, KvFrameHeader first, KeptPrefills& kept,
                              ExpectedPushes& expected, PushWait wait) {
  Attending attending(link, kept, expected);
  co_await attending.take(first);
  while (co_await attending.tell()) {
    if (co_await first_of(link.readable(), wait(attending.until())) != 0) continue;
    const KvFrameHeader header = co_await link.read_header(std::chrono::seconds(1));
    co_await attending.take(header);
  }
}

struct PushWaits::Waiter {
  Waiter(asio::any_io_executor executor, KvKey p)
      : prefill(std::move(p)), answered(std::move(executor), Clock::time_point::max()) {}

  const KvKey prefill;
  asio::steady_timer answered;
  bool is_asked = false, is_answered = false;
  std::exception_ptr loss = nullptr;

  void answer(std::exception_ptr why) {
    loss = std::move(why);
    is_answered = true;
    answered.cancel();
  }
};

struct PushWaits::Line {
  Line(asio::any_io_executor executor, SocketAddress a)
      : address(std::move(a)), news(std::move(executor)) {}

  const SocketAddress address;
  asio::steady_timer news;                   // somebody waits for something more
  std::map<std::uint64_t, Waiter*> waiters;  // by stream; those that are not answered
};

PushWaits::PushWaits(TaskGroup& tasks, Connect connect, std::chrono::nanoseconds silence)
    : tasks_(tasks), connect_(std::move(connect)), silence_(silence) {}

PushWaits::~PushWaits() = default;

awaitable<void> PushWaits::begun(SocketAddress address, KvKey prefill) {
  const auto executor = co_await asio::this_coro::executor;
  std::shared_ptr<Line>& known = lines_[address.text()];
  const bool is_new = known == nullptr;
  if (is_new) known = std::make_shared<Line>(executor, address);
  const std::shared_ptr<Line> line = known;
  Waiter waiter(executor, std::move(prefill));
  const std::uint64_t stream = ++last_stream_;
  line->waiters[stream] = &waiter;
  struct Place {
    Line& line;
    std::uint64_t stream;
    ~Place() {
      line.waiters.erase(stream);
      line.news.cancel();
    }
  } place{*line, stream};
  is_new ? tasks_.spawn(run(line)) : static_cast<void>(line->news.cancel());
  boost::system::error_code ignored;
  if (!waiter.is_answered)  // run() may have ended already
    co_await waiter.answered.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  if (!waiter.is_answered) throw boost::system::system_error(asio::error::operation_aborted);
  if (waiter.loss) std::rethrow_exception(waiter.loss);
}

// Ends with the last who waits; the next one begins anew.
awaitable<void> PushWaits::run(std::shared_ptr<Line> line) {
  struct Ending {
    PushWaits& all;
    const std::string name;
    ~Ending() { all.lines_.erase(name); }
  } ending{*this, line->address.text()};
  try {
    const auto link = co_await connect_(line->address);
    co_await attend(*line, *link);
  } catch (...) {
    if (is_cancellation(std::current_exception())) throw;
    const auto waiters = std::exchange(line->waiters, {});
    for (const auto& [stream, waiter] : waiters) waiter->answer(std::current_exception());
  }
}

awaitable<void> PushWaits::attend(Line& line, FrameLink& link) {
  constexpr int kPerSilence = 4;
  auto heard = Clock::now();
  while (!line.waiters.empty()) {
    const auto unasked =
        std::ranges::find_if(line.waiters, [](const auto& one) { return !one.second->is_asked; });
    if (unasked != line.waiters.end()) {
      unasked->second->is_asked = true;
      KvExpect expect;
      expect.prefill = unasked->second->prefill;
      expect.alive_ms = static_cast<int>(
          std::chrono::duration_cast<std::chrono::milliseconds>(silence_).count() / kPerSilence);
      const std::string text = encode_kv(expect);
      co_await link.send(KvFrameType::expect, unasked->first, text);
      continue;
    }
    if (link.is_quiet()) {  // else it was not silent, however late this thread looks
      if (Clock::now() - heard >= silence_)
        throw KvLost(KvLossReason::peer_lost, "silent while its prefills are waited for", true);
      line.news.expires_at(heard + silence_);
      const auto changed = [&line]() -> awaitable<void> {
        boost::system::error_code ignored;
        co_await line.news.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      };
      co_await first_of(link.readable(), changed());
      continue;
    }
    const KvFrameHeader header = co_await link.read_header(silence_);
    const std::string body = co_await link.read_message(header);
    heard = Clock::now();
    if (header.type == KvFrameType::alive) continue;
    const auto found = line.waiters.find(header.stream);
    if (header.type != KvFrameType::expected && header.type != KvFrameType::refused)
      throw KvLost(KvLossReason::corrupt, "no answer to what is expected");
    if (found == line.waiters.end()) continue;  // it was cancelled
    Waiter& waiter = *found->second;
    line.waiters.erase(found);
    waiter.answer(header.type == KvFrameType::expected ? nullptr : loss_of(body));
  }
}

}  // namespace quire
