#include "engine/kv_transfer/nixl_push_plane.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <random>
#include <utility>

#include "base/log.h"
#include "engine/kv_nixl/nixl_library.h"
#include "engine/kv_transfer/block_shape.h"
#include "engine/kv_transfer/refusals.h"
#include "engine/kv_transfer/state_layout.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLookForNotices{10}, kLookSoon{1}, kPauseAfterFailure{500};

std::string random_agent_name() {
  std::random_device random;
  return fmt::format("quire-{:08x}{:08x}", random(), random());
}

}  // namespace

struct NixlPushPlane::State {
  State(NixlPushPlaneOptions o, std::function<void()> w)
      : options(std::move(o)), library(options.library), wake(std::move(w)) {}

  NixlPushPlaneOptions options;
  const NixlLibrary library;
  const std::function<void()> wake;
  std::uint16_t port = 0;
  KeptPrefills* kept = nullptr;

  SideChannel channel;
  std::optional<NixlAgent> agent;  // on the thread
  std::optional<NixlRemotes> remotes;
  std::shared_ptr<StagedRange> slot_memory;
  std::optional<NixlSlots> slots;
  std::optional<NixlPushSender> sender;
  std::optional<NixlPushReceiver> receiver;
  std::optional<Clock::time_point> next_end;  // of a lease

  std::mutex mutex;
  std::vector<std::function<void(NixlPushReceiver&)>> calls;
  std::atomic<bool> stopping = false;

  NixlAgent& the_agent();
  void begin_sending(KeptPrefills& prefills);
  void begin_receiving(StagingBuffer& arriving);
  void run();
  void serve();
  std::string metadata();
  std::vector<std::string> answer(std::string_view question);
  void take_notices();
  void take_notice(const std::string& from, const std::string& notice);
};

NixlAgent& NixlPushPlane::State::the_agent() {
  if (agent) return *agent;
  agent.emplace(library, random_agent_name());
  try {
    if (slots) agent->register_memory(slots->memory());
    if (sender) agent->register_memory(sender->scratch());
  } catch (...) {
    agent.reset();  // or others would be given one without its memory
    throw;
  }
  return *agent;
}

void NixlPushPlane::State::begin_sending(KeptPrefills& prefills) {
  kept = &prefills;
  options.sender.engine = options.engine;
  options.sender.block_size = options.block_size;
  sender.emplace(options.self, *remotes, prefills, options.sender);
  prefills.on_kept([this] { channel.wake(); });
}

// Half of the buffer is for blocks, the rest for the rows that they become.
void NixlPushPlane::State::begin_receiving(StagingBuffer& arriving) {
  slot_memory = arriving.take(arriving.size() / 2);
  slots.emplace(slot_memory->bytes(), options.self.geometry, options.self.regions,
                options.block_size);
  options.receiver.engine = options.engine;
  options.receiver.address = options.listen;
  options.receiver.address.port = port;
  receiver.emplace(options.self, *remotes, *slots, arriving, options.receiver, wake);
}

NixlPushPlane::NixlPushPlane(NixlPushPlaneOptions options, KeptPrefills* kept,
                             StagingBuffer* arriving, std::function<void()> wake)
    : state_(std::make_unique<State>(std::move(options),
                                     wake ? std::move(wake) : std::function<void()>([] {}))) {
  State& state = *state_;
  { const NixlAgent trial(state.library, random_agent_name()); }  // fails now or never
  state.port = state.channel.listen(state.options.listen);
  const auto agent = [&state]() -> NixlAgent& { return state.the_agent(); };
  state.remotes.emplace(state.options.self, state.channel, agent, state.options.silence);
  if (arriving != nullptr) state.begin_receiving(*arriving);
  if (kept != nullptr) state.begin_sending(*kept);
  thread_ = std::thread([&state] { state.run(); });
}

NixlPushPlane::~NixlPushPlane() {
  state_->stopping = true;
  state_->channel.wake();
  thread_.join();
  if (state_->kept != nullptr) state_->kept->on_kept([] {});
}

void NixlPushPlane::State::run() {
  while (!stopping) {
    try {
      serve();
    } catch (const std::exception& e) {  // of the library: those who wait have deadlines
      log::error("kv_transfer.failed", {{"because", e.what()}});
      channel.wait(Clock::now() + kPauseAfterFailure);
    }
  }
}

void NixlPushPlane::State::serve() {
  while (!stopping) {
    std::vector<std::function<void(NixlPushReceiver&)>> now;
    {
      const std::lock_guard lock(mutex);
      now.swap(calls);
    }
    if (receiver)
      for (const auto& call : now) call(*receiver);
    channel.answer_all([this](std::string_view question) { return answer(question); });
    if (agent) take_notices();
    remotes->take_answers(Clock::now());
    auto next = Clock::time_point::max();
    if (receiver) next = std::min(next, receiver->step());
    if (sender) next = std::min(next, sender->step());
    remotes->forget_lost();
    if (kept != nullptr) next_end = kept->expire(Clock::now());
    next = std::min({next, remotes->next(), next_end.value_or(next)});
    const bool is_waiting =
        next_end || (receiver && receiver->is_waiting()) || (sender && sender->is_waiting());
    if (agent) next = std::min(next, Clock::now() + (is_waiting ? kLookSoon : kLookForNotices));
    channel.wait(next);
  }
}

// A question that nobody should have asked gets no answer, and a line in the log.
std::vector<std::string> NixlPushPlane::State::answer(std::string_view question) {
  const auto rank = parse_metadata_request(question);
  if (!rank || rank->pipeline != 0 || rank->tensor != 0) {
    log_refused(rank ? "a rank was asked for that there is not" : rank.error().detail);
    return {};
  }
  const NixlHandshake handshake{compatibility_hash(options.self.factors, options.self.profile),
                                metadata()};
  return {encode_handshake(handshake),
          encode_clock(std::chrono::duration<double>(Clock::now().time_since_epoch()).count())};
}

// Whoever only prefills has no blocks to name; vLLM wants some, and gets what is written from.
std::string NixlPushPlane::State::metadata() {
  NixlMetadata metadata;
  metadata.engine = options.engine;
  metadata.agent = the_agent().metadata();
  const BlockShape shape =
      block_shape(options.self.geometry, options.self.regions, options.block_size);
  const std::vector<std::int64_t>& bytes = shape.region_bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::byte* const at = slots ? slots->regions()[i].bytes.data() : sender->scratch().data();
    metadata.base_addresses.push_back(reinterpret_cast<std::uint64_t>(at));
    metadata.block_lens.push_back(static_cast<std::uint64_t>(bytes[i]));
    metadata.memories.push_back(static_cast<std::int32_t>(NixlMemory::dram));
  }
  metadata.block_strides = metadata.block_lens;
  metadata.num_blocks =
      static_cast<std::uint64_t>(slots ? slots->num_kernel_blocks() : shape.ratio);
  metadata.kernel_blocks_per_block = shape.ratio;
  if (const KvStateGeometry* const state = first_state(options.self.geometry)) {
    const StateBytes parts = state_bytes(*state);
    metadata.state_bytes = {static_cast<std::uint64_t>(parts.conv()),
                            static_cast<std::uint64_t>(parts.rest)};
  }
  metadata.layout = options.self.profile.layout;
  metadata.block_size = options.block_size;
  metadata.attention_backend = options.attention_backend;
  KvWelcome welcome;
  welcome.engine = options.engine;
  welcome.geometry = options.self.geometry;
  metadata.quire = QuireExtension{
      encode_kv(welcome),
      slots ? slots->sums_address() : reinterpret_cast<std::uint64_t>(sender->scratch().data())};
  return encode_metadata(metadata, options.self.profile);
}

void NixlPushPlane::State::take_notices() {
  for (const auto& [from, notice] : agent->take_notices()) take_notice(from, notice);
}

void NixlPushPlane::State::take_notice(const std::string& from, const std::string& notice) {
  if (notice.starts_with(kPushRegistration)) {
    if (sender) return sender->register_push(from, notice);
  } else if (notice.starts_with("HB:")) {
    if (sender) sender->renew(std::string_view(notice).substr(3));
    return;
  } else if (const auto forgotten = parse_push_forgotten(notice)) {
    if (sender) return sender->forget(*forgotten);
  } else if (const auto lost = parse_push_lost(notice)) {
    if (receiver && receiver->was_lost(from, *lost)) return;
  } else if (const auto done = parse_nixl_done(notice)) {
    if (receiver && receiver->was_written(from, *done)) return;
  }
  log_refused("a notice of nothing that is known here", from);
}

void NixlPushPlane::post(std::function<void(NixlPushReceiver&)> call) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->calls.push_back(std::move(call));
  }
  state_->channel.wake();
}

void NixlPushPlane::watch(RequestId request, KvSource source) {
  post([request, source = std::move(source)](NixlPushReceiver& receiver) {
    receiver.watch(request, source);
  });
}
void NixlPushPlane::fetch(KvFetch fetch) {
  post([fetch = std::move(fetch)](NixlPushReceiver& receiver) { receiver.fetch(fetch); });
}
void NixlPushPlane::cancel(RequestId request) {
  post([request](NixlPushReceiver& receiver) { receiver.cancel(request); });
}
void NixlPushPlane::release(RequestId request) {
  post([request](NixlPushReceiver& receiver) { receiver.release(request); });
}
void NixlPushPlane::room_came() {
  state_->channel.wake();  // each step looks for room
}
std::vector<KvFetched> NixlPushPlane::take() {
  return state_->receiver ? state_->receiver->take() : std::vector<KvFetched>();
}

std::uint16_t NixlPushPlane::port() const { return state_->port; }
const KvTrafficCounts& NixlPushPlane::sent() const {
  static const KvTrafficCounts kNone;
  return state_->sender ? state_->sender->counts() : kNone;
}
const KvTrafficCounts& NixlPushPlane::received() const {
  static const KvTrafficCounts kNone;
  return state_->receiver ? state_->receiver->counts() : kNone;
}

}  // namespace quire
