#include "engine/kv_transfer/nixl/thread.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <random>
#include <utility>

#include "base/log.h"
#include "engine/kv_nixl/nixl_library.h"
#include "engine/kv_transfer/peers/refusals.h"

namespace quire {
namespace {

using Clock = NixlSide::Clock;
// Between two looks for notices: a part of the time in which nothing came, within these.
constexpr int kPartOfQuiet = 16;
constexpr std::chrono::milliseconds kLookSoonest{1}, kLookWhileAwaited{10}, kLookSeldom{100};
constexpr std::chrono::milliseconds kPauseAfterFailure{100};
constexpr std::size_t kMaxNoticeBytes = (1 << 20) + 64;  // of a registration and its first word

std::string random_agent_name() {
  std::random_device random;
  return fmt::format("quire-{:08x}{:08x}", random(), random());
}

}  // namespace

struct NixlThread::State {
  State(NixlThreadOptions o, std::function<void()> w)
      : options(std::move(o)),
        library(*options.library),
        wake(w ? std::move(w) : std::function<void()>([] {})) {}

  const NixlThreadOptions options;
  const NixlLibrary& library;
  const std::function<void()> wake;
  std::uint16_t port = 0;

  SideChannel channel;
  std::optional<NixlAgent> agent;  // on the thread
  std::optional<NixlRemotes> remotes;
  std::unique_ptr<NixlSide> side;
  Clock::time_point last_event = Clock::now();  // call, question or notice

  std::mutex mutex;
  std::vector<std::function<void(KvFetcher&)>> calls;
  std::atomic<bool> stopping = false;

  NixlAgent& the_agent();
  void run();
  Clock::time_point work();
  void make_calls();
  std::vector<std::string> answer(std::string_view question);
  std::vector<std::string> greeting(std::string_view question);
  void take_notices();
  Clock::time_point next_look() const;
  template <class Work>
  bool survives(Work work);
};

// What one piece of work throws is told, and ends nothing else.
template <class Work>
bool NixlThread::State::survives(Work work) try {
  work();
  return true;
} catch (const std::exception& e) {
  static log::Limit lines(8);
  if (lines.allows()) log::error("kv_transfer.failed", {{"because", e.what()}});
  return false;
}

NixlAgent& NixlThread::State::the_agent() {
  if (agent) return *agent;
  agent.emplace(library, random_agent_name());
  try {
    for (const std::span<std::byte> memory : side->memory()) agent->register_memory(memory);
  } catch (...) {
    agent.reset();  // or others would be given one without its memory
    throw;
  }
  return *agent;
}

NixlThread::NixlThread(NixlThreadOptions options, std::function<void()> wake, const Make& make)
    : state_(std::make_unique<State>(std::move(options), std::move(wake))) {
  State& state = *state_;
  { const NixlAgent trial(state.library, random_agent_name()); }  // fails now or never
  if (state.options.listen) state.port = state.channel.listen(*state.options.listen);
  state.remotes.emplace(
      state.options.self, state.channel, [&state]() -> NixlAgent& { return state.the_agent(); },
      state.options.silence);
  state.side = make(
      state.options.self,
      {*state.remotes, state.port, [&state] { state.channel.wake(); }, [&state] { state.wake(); }});
  thread_ = std::thread([&state] { state.run(); });
}

NixlThread::~NixlThread() {
  state_->stopping = true;
  state_->channel.wake();
  thread_.join();
}

void NixlThread::State::run() {
  while (!stopping) {
    auto next = Clock::now() + kPauseAfterFailure;
    survives([&] { next = work(); });
    channel.wait(next);
  }
}

Clock::time_point NixlThread::State::work() {
  make_calls();
  bool is_well = true;
  if (agent) is_well = survives([&] { take_notices(); });
  channel.answer_all([this](std::string_view question) { return answer(question); });
  remotes->take_answers(Clock::now());
  auto next = side->step();
  remotes->forget_unused(Clock::now());
  next = std::min(next, remotes->next());
  if (agent) next = std::min(next, is_well ? next_look() : Clock::now() + kPauseAfterFailure);
  return next;
}

void NixlThread::State::make_calls() {
  std::vector<std::function<void(KvFetcher&)>> now;
  {
    const std::lock_guard lock(mutex);
    now.swap(calls);
  }
  if (now.empty() || side->fetcher() == nullptr) return;
  last_event = Clock::now();
  for (const auto& call : now) survives([&] { call(*side->fetcher()); });
}

Clock::time_point NixlThread::State::next_look() const {
  const auto now = Clock::now();
  const auto most = side->awaits_notices() ? kLookWhileAwaited : kLookSeldom;
  const auto quiet = (now - last_event) / kPartOfQuiet;
  return now + std::clamp<Clock::duration>(quiet, kLookSoonest, most);
}

std::vector<std::string> NixlThread::State::answer(std::string_view question) {
  last_event = Clock::now();
  std::vector<std::string> frames;
  survives([&] {
    std::string answer = side->answer(question);
    if (answer.empty()) {
      frames = greeting(question);
    } else {
      frames.push_back(std::move(answer));
    }
  });
  return frames;
}

// A question that nobody should have asked gets no answer, and a line in the log.
std::vector<std::string> NixlThread::State::greeting(std::string_view question) {
  const auto rank = parse_metadata_request(question);
  if (!rank || rank->pipeline != 0 || rank->tensor != 0) {
    log_refused(rank ? "a rank was asked for that there is not" : rank.error().detail);
    return {};
  }
  NixlMetadata metadata;
  metadata.engine = options.engine;
  metadata.agent = the_agent().metadata();
  metadata.layout = options.self.profile.layout;
  metadata.attention_backend = options.attention_backend;
  KvWelcome welcome;
  welcome.protocol = kKvProtocol;
  welcome.engine = options.engine;
  welcome.geometry = options.self.geometry;
  metadata.quire = QuireExtension{encode_kv(welcome), 0};
  side->describe(metadata);
  std::vector<std::string> frames = {
      encode_handshake({compatibility_hash(options.self.factors, options.self.profile),
                        encode_metadata(metadata, options.self.profile)})};
  if (options.self.profile.answers_clock)
    frames.push_back(
        encode_clock(std::chrono::duration<double>(Clock::now().time_since_epoch()).count()));
  return frames;
}

void NixlThread::State::take_notices() {
  for (const auto& [from, notice] : agent->take_notices()) {
    last_event = Clock::now();
    const bool is_known = notice.size() <= kMaxNoticeBytes;
    survives([&] {
      if (!is_known || !side->take_notice(from, notice))
        log_refused("a notice of nothing that is known here", from);
    });
  }
}

void NixlThread::post(std::function<void(KvFetcher&)> call) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->calls.push_back(std::move(call));
  }
  state_->channel.wake();
}

KvFetcher* NixlThread::fetcher() const { return state_->side->fetcher(); }
std::uint16_t NixlThread::port() const { return state_->port; }
const KvTrafficCounts& NixlThread::sent() const { return state_->side->sent(); }

}  // namespace quire
