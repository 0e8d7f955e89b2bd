#include "engine/kv_events/publisher.h"

#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace quire {
namespace {

constexpr int kLingerMs = 1000;
constexpr std::size_t kMaxQueued = 100'000;  // batches
constexpr int kDefaultBufferSteps = 10'000;
constexpr int kDefaultHighWaterMark = 100'000;

[[noreturn]] void fail(const std::string& what) {
  throw Failure(ErrorCode::invalid_argument,
                "KV events: " + what + ": " + zmq_strerror(zmq_errno()));
}

class Context {
 public:
  Context() : handle_(zmq_ctx_new()) {
    if (handle_ == nullptr) fail("no ZeroMQ context");
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { zmq_ctx_term(handle_); }
  void* handle() const { return handle_; }

 private:
  void* handle_;
};

class Socket {
 public:
  Socket(const Context& context, int type) : handle_(zmq_socket(context.handle(), type)) {
    if (handle_ == nullptr) fail("no ZeroMQ socket");
    zmq_setsockopt(handle_, ZMQ_LINGER, &kLingerMs, sizeof kLingerMs);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() { zmq_close(handle_); }
  void* handle() const { return handle_; }

  void limit_unsent(int messages) {
    zmq_setsockopt(handle_, ZMQ_SNDHWM, &messages, sizeof messages);
  }
  // Of a ROUTER: send() fails where it would drop in silence, for a client that is gone or full.
  void tell_refusals() {
    const int on = 1;
    zmq_setsockopt(handle_, ZMQ_ROUTER_MANDATORY, &on, sizeof on);
  }
  // The address with the port that was chosen.
  std::string bind(const std::string& endpoint) {
    if (zmq_bind(handle_, endpoint.c_str()) != 0) fail("cannot listen at " + endpoint);
    std::array<char, 256> bound{};
    std::size_t size = bound.size();
    zmq_getsockopt(handle_, ZMQ_LAST_ENDPOINT, bound.data(), &size);
    return bound.data();
  }
  void connect(const std::string& endpoint) {
    if (zmq_connect(handle_, endpoint.c_str()) != 0) fail("cannot connect to " + endpoint);
  }
  // Whether the frame was taken; frames of one message go together.
  bool send(std::string_view frame, bool last) {
    const int flags = ZMQ_DONTWAIT | (last ? 0 : ZMQ_SNDMORE);
    return zmq_send(handle_, frame.data(), frame.size(), flags) >= 0;
  }
  // The next message's frames, or none when there is no message.
  std::vector<std::string> receive() {
    std::vector<std::string> frames;
    int more = 1;
    while (more != 0) {
      zmq_msg_t message;
      zmq_msg_init(&message);
      if (zmq_msg_recv(&message, handle_, ZMQ_DONTWAIT) < 0) {
        zmq_msg_close(&message);
        break;
      }
      frames.emplace_back(static_cast<const char*>(zmq_msg_data(&message)), zmq_msg_size(&message));
      more = zmq_msg_more(&message);
      zmq_msg_close(&message);
    }
    return frames;
  }

 private:
  void* handle_;
};

// As vLLM decides: wildcards and local sockets are bound; other addresses are a router's own.
bool is_bound(const std::string& endpoint) {
  return endpoint.find('*') != std::string::npos || endpoint.find("::") != std::string::npos ||
         endpoint.starts_with("ipc://");
}

std::string big_endian(std::uint64_t value) {
  std::string bytes(8, '\0');
  for (int i = 7; i >= 0; --i, value >>= 8)
    bytes[static_cast<std::size_t>(i)] = static_cast<char>(value);
  return bytes;
}

std::uint64_t from_big_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<std::uint8_t>(byte);
  return value;
}

double seconds_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

}  // namespace

class KvEventPublisher::Impl {
 public:
  Impl(const KvEventsConfig& config, KvEventFormat format)
      : config_(config),
        buffer_steps_(static_cast<std::size_t>(config.buffer_steps.value_or(kDefaultBufferSteps))),
        format_(std::move(format)),
        pub_(context_, ZMQ_PUB) {
    const int rank = format_.data_parallel_rank;
    pub_.limit_unsent(config.high_water_mark.value_or(kDefaultHighWaterMark));
    endpoint_ = endpoint_of_rank(config.endpoint, rank);
    if (is_bound(endpoint_))
      endpoint_ = pub_.bind(endpoint_);
    else
      pub_.connect(endpoint_);
    if (!config.replay_endpoint.empty()) {
      replay_.emplace(context_, ZMQ_ROUTER);
      replay_->limit_unsent(unsent_replays());
      replay_->tell_refusals();
      replay_endpoint_ = replay_->bind(endpoint_of_rank(config.replay_endpoint, rank));
    }
    wake_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (wake_ < 0) throw Failure(ErrorCode::internal, "KV events: no eventfd");
    thread_ = std::thread([this] { run(); });
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake();
    thread_.join();
    close(wake_);
  }

  void publish(std::vector<KvEvent> events) {
    if (events.empty()) return;
    {
      const std::lock_guard lock(mutex_);
      const std::uint64_t sequence = next_sequence_++;
      if (queue_.size() >= kMaxQueued) return;
      queue_.push_back({sequence, seconds_now(), std::move(events)});
    }
    wake();
  }

  const std::string& endpoint() const { return endpoint_; }
  const std::string& replay_endpoint() const { return replay_endpoint_; }

 private:
  struct Batch {
    std::uint64_t sequence = 0;
    double seconds = 0;
    std::vector<KvEvent> events;
  };
  struct Sent {
    std::uint64_t sequence = 0;
    std::string payload;
  };

  void wake() {
    const std::uint64_t one = 1;
    // Full means that the thread is awake already.
    [[maybe_unused]] const auto written = write(wake_, &one, sizeof one);
  }

  void run() {
    std::array<zmq_pollitem_t, 2> items = {{{nullptr, wake_, ZMQ_POLLIN, 0}, {}}};
    if (replay_) items[1] = {replay_->handle(), 0, ZMQ_POLLIN, 0};
    for (;;) {
      zmq_poll(items.data(), replay_ ? 2 : 1, -1);
      std::uint64_t count = 0;
      [[maybe_unused]] const auto got = read(wake_, &count, sizeof count);
      const bool stopping = send_queued();
      if (replay_) answer_replays();
      if (stopping) return;
    }
  }

  // Sends all; whether this was the last time.
  bool send_queued() {
    std::deque<Batch> batches;
    bool stopping = false;
    {
      const std::lock_guard lock(mutex_);
      batches.swap(queue_);
      stopping = stopping_;
    }
    for (const Batch& batch : batches) {
      std::string payload = encode_kv_events(batch.seconds, batch.events, format_);
      pub_.send(config_.topic, false);
      pub_.send(big_endian(batch.sequence), false);
      pub_.send(payload, true);
      if (!replay_) continue;
      sent_.push_back({batch.sequence, std::move(payload)});
      if (sent_.size() > buffer_steps_) sent_.pop_front();
    }
    return stopping;
  }

  void answer_replays() {
    for (auto frames = replay_->receive(); !frames.empty(); frames = replay_->receive()) {
      if (frames.size() != 3 || frames[2].size() != 8) {
        log::warn("kv_events.bad_replay_request", {{"frames", frames.size()}});
        continue;
      }
      if (!replay(frames[0], from_big_endian(frames[2])))
        log::warn("kv_events.replay_cut", {{"because", zmq_strerror(zmq_errno())}});
    }
  }

  // All that is kept and the end mark wait for a client to read them; of more that it asks for
  // before it has, it gets no end mark. Twice as many: ZeroMQ hears of what was read by the half.
  int unsent_replays() const {
    return static_cast<int>(std::min<std::size_t>(2 * (buffer_steps_ + 1), INT_MAX));
  }

  // False: the client is gone, or has yet to read what it asked for before.
  bool replay(const std::string& client, std::uint64_t first) {
    for (const Sent& sent : sent_) {
      if (sent.sequence < first) continue;
      if (!reply(client, big_endian(sent.sequence), sent.payload)) return false;
    }
    return reply(client, big_endian(UINT64_MAX), {});
  }

  bool reply(const std::string& client, const std::string& sequence, const std::string& payload) {
    return replay_->send(client, false) && replay_->send({}, false) &&
           replay_->send(sequence, false) && replay_->send(payload, true);
  }

  const KvEventsConfig config_;
  const std::size_t buffer_steps_;
  const KvEventFormat format_;
  Context context_;
  Socket pub_;  // the thread's, as is replay_
  std::optional<Socket> replay_;
  std::string endpoint_, replay_endpoint_;
  std::deque<Sent> sent_;  // the thread's
  int wake_ = -1;

  std::mutex mutex_;  // guards what follows
  std::deque<Batch> queue_;
  std::uint64_t next_sequence_ = 0;
  bool stopping_ = false;

  std::thread thread_;
};

KvEventPublisher::KvEventPublisher(const KvEventsConfig& config, KvEventFormat format)
    : impl_(std::make_unique<Impl>(config, std::move(format))) {}

KvEventPublisher::~KvEventPublisher() = default;

void KvEventPublisher::publish(std::vector<KvEvent> events) { impl_->publish(std::move(events)); }

const std::string& KvEventPublisher::endpoint() const { return impl_->endpoint(); }

const std::string& KvEventPublisher::replay_endpoint() const { return impl_->replay_endpoint(); }

std::string endpoint_of_rank(const std::string& endpoint, int rank) {
  const std::size_t colon = endpoint.rfind(':');
  const std::string port = endpoint.substr(colon + 1);
  if (!endpoint.starts_with("tcp://"))
    return rank == 0 ? endpoint : endpoint + "_dp" + std::to_string(rank);
  if (port == "*" || port == "0") return endpoint;  // any
  if (port.empty() || port.size() > 5 ||
      port.find_first_not_of("0123456789") != std::string::npos || std::stoi(port) + rank > 65535)
    throw Failure(ErrorCode::invalid_argument, "KV events: " + endpoint + " has no port for rank " +
                                                   std::to_string(rank));
  return endpoint.substr(0, colon + 1) + std::to_string(std::stoi(port) + rank);
}

}  // namespace quire
