#include "engine/kv_transfer/nixl_plane.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <random>
#include <utility>

#include "base/log.h"
#include "engine/kv_nixl/nixl_library.h"
#include "engine/kv_nixl/push_registration.h"
#include "engine/kv_transfer/refusals.h"
#include "engine/kv_transfer/state_layout.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLookForNotices{10};  // while something is kept
constexpr std::size_t kMaxNoticeBytes = 1 << 20;

std::string random_agent_name() {
  std::random_device random;
  return fmt::format("quire-{:08x}{:08x}", random(), random());
}

}  // namespace

struct NixlPlane::State {
  State(NixlPlaneOptions o, NixlExports* e, StagingBuffer* a, std::function<void()> w)
      : options(std::move(o)),
        library(options.library),
        exports(e),
        arriving(a),
        wake(std::move(w)) {}

  const NixlPlaneOptions options;
  const NixlLibrary library;
  NixlExports* const exports;
  StagingBuffer* const arriving;
  const std::function<void()> wake;
  KvTrafficCounts sent;
  std::uint16_t port = 0;

  SideChannel channel;
  std::optional<NixlAgent> agent;  // on the thread
  std::optional<NixlRemotes> remotes;
  std::optional<NixlPuller> puller;
  std::optional<Clock::time_point> next_end;  // of a lease

  std::mutex mutex;
  std::vector<std::function<void(NixlPuller&)>> calls;
  std::atomic<bool> stopping = false;

  NixlAgent& the_agent() {
    if (agent) return *agent;
    agent.emplace(library, random_agent_name());
    if (exports != nullptr) agent->register_memory(exports->memory());
    if (arriving != nullptr) agent->register_memory(arriving->all());
    return *agent;
  }

  void run();
  void serve();
  std::string metadata();
  std::vector<std::string> answer(std::string_view question);
  void take_notices();
  void expire();
  void count_reads();
};

NixlPlane::NixlPlane(NixlPlaneOptions options, NixlExports* exports, StagingBuffer* arriving,
                     std::function<void()> wake)
    : state_(std::make_unique<State>(std::move(options), exports, arriving,
                                     wake ? std::move(wake) : std::function<void()>([] {}))) {
  State& state = *state_;
  { const NixlAgent trial(state.library, random_agent_name()); }  // fails now or never
  if (state.options.listen) state.port = state.channel.listen(*state.options.listen);
  if (exports != nullptr) exports->on_kept([&state] { state.channel.wake(); });
  if (arriving != nullptr) {
    const auto agent = [&state]() -> NixlAgent& { return state.the_agent(); };
    state.remotes.emplace(state.options.self, state.channel, agent, state.options.puller.silence);
    state.puller.emplace(state.options.self, *state.remotes, *arriving, state.options.puller,
                         state.wake);
  }
  thread_ = std::thread([&state] { state.run(); });
}

NixlPlane::~NixlPlane() {
  state_->stopping = true;
  state_->channel.wake();
  thread_.join();
  if (state_->exports != nullptr) state_->exports->on_kept([] {});
}

void NixlPlane::State::run() {
  try {
    serve();
  } catch (const std::exception& e) {
    log::error("kv_transfer.dead", {{"because", e.what()}});
  }
  puller.reset();
  remotes.reset();
  agent.reset();
}

void NixlPlane::State::serve() {
  while (!stopping) {
    std::vector<std::function<void(NixlPuller&)>> now;
    {
      const std::lock_guard lock(mutex);
      now.swap(calls);
    }
    if (puller)
      for (const auto& call : now) call(*puller);
    channel.answer_all([this](std::string_view question) { return answer(question); });
    if (agent && exports != nullptr) take_notices();
    expire();
    auto next = puller ? puller->step() : Clock::time_point::max();
    if (next_end) next = std::min({next, *next_end, Clock::now() + kLookForNotices});
    channel.wait(next);
  }
}

// A question that nobody should have asked gets no answer, and a line in the log.
std::vector<std::string> NixlPlane::State::answer(std::string_view question) {
  const auto rank = parse_metadata_request(question);
  if (!rank || rank->pipeline != 0 || rank->tensor != 0) {
    log_refused(rank ? "a rank was asked for that there is not" : rank.error().detail);
    return {};
  }
  const NixlHandshake handshake{compatibility_hash(options.self.factors, options.self.profile),
                                metadata()};
  std::vector<std::string> frames = {encode_handshake(handshake)};
  if (options.self.profile.answers_clock)
    frames.push_back(
        encode_clock(std::chrono::duration<double>(Clock::now().time_since_epoch()).count()));
  return frames;
}

std::string NixlPlane::State::metadata() {
  NixlMetadata metadata;
  metadata.engine = options.engine;
  metadata.agent = the_agent().metadata();
  for (const NixlExports::Region& region : exports->regions()) {
    metadata.base_addresses.push_back(region.address);
    metadata.block_lens.push_back(region.block_bytes);
    metadata.memories.push_back(static_cast<std::int32_t>(NixlMemory::dram));
  }
  metadata.block_strides = metadata.block_lens;
  metadata.num_blocks = static_cast<std::uint64_t>(exports->num_blocks());
  metadata.layout = options.self.profile.layout;
  metadata.block_size = NixlExports::kBlockSize;
  metadata.kernel_blocks_per_block = exports->ratio();
  if (const KvStateGeometry* const state = first_state(options.self.geometry)) {
    const StateBytes bytes = state_bytes(*state);
    metadata.state_bytes = {static_cast<std::uint64_t>(bytes.conv()),
                            static_cast<std::uint64_t>(bytes.rest)};
  }
  metadata.attention_backend = options.attention_backend;
  KvWelcome welcome;
  welcome.engine = options.engine;
  welcome.geometry = options.self.geometry;
  metadata.quire = QuireExtension{encode_kv(welcome), exports->sums_address()};
  return encode_metadata(metadata, options.self.profile);
}

void NixlPlane::State::take_notices() {
  for (const auto& [from, notice] : agent->take_notices()) {
    if (notice.size() > kMaxNoticeBytes) continue;
    if (notice.starts_with("HB:")) {
      std::string_view rest = std::string_view(notice).substr(3);
      while (!rest.empty()) {
        const auto comma = std::min(rest.find(','), rest.size());
        exports->renew(std::string(rest.substr(0, comma)));
        rest.remove_prefix(std::min(rest.size(), comma + 1));
      }
    } else if (const auto done = parse_nixl_done(notice)) {
      exports->was_read(done->request, done->ranks);
      count_reads();
    } else {
      log_refused("a notice of no known form", from);
    }
  }
}

// The reads themselves are not seen on this side.
void NixlPlane::State::count_reads() {
  const NixlExports::Counts counts = exports->counts();
  if (sent.requests == counts.read) return;
  sent.requests = counts.read;
  sent.bytes = counts.read_bytes;
  wake();
}

void NixlPlane::State::expire() {
  if (exports == nullptr) return;
  const std::int64_t expired = exports->counts().expired;
  next_end = exports->expire(Clock::now());
  if (exports->counts().expired != expired) wake();
}

void NixlPlane::post(std::function<void(NixlPuller&)> call) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->calls.push_back(std::move(call));
  }
  state_->channel.wake();
}

void NixlPlane::watch(RequestId request, KvSource source) {
  post(
      [request, source = std::move(source)](NixlPuller& puller) { puller.watch(request, source); });
}
void NixlPlane::fetch(KvFetch fetch) {
  post([fetch = std::move(fetch)](NixlPuller& puller) { puller.fetch(fetch); });
}
void NixlPlane::cancel(RequestId request) {
  post([request](NixlPuller& puller) { puller.cancel(request); });
}
void NixlPlane::release(RequestId request) {
  post([request](NixlPuller& puller) { puller.release(request); });
}
void NixlPlane::room_came() {
  state_->channel.wake();  // each step looks for room
}
std::vector<KvFetched> NixlPlane::take() {
  return state_->puller ? state_->puller->take() : std::vector<KvFetched>();
}

std::uint16_t NixlPlane::port() const { return state_->port; }
const KvTrafficCounts& NixlPlane::sent() const { return state_->sent; }
const KvTrafficCounts& NixlPlane::received() const {
  static const KvTrafficCounts kNone;
  return state_->puller ? state_->puller->counts() : kNone;
}

}  // namespace quire
