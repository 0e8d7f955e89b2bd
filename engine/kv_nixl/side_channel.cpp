#include "engine/kv_nixl/side_channel.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <list>

#include "base/error.h"
#include "engine/kv_nixl/handshake.h"

namespace quire {
namespace {

constexpr int kNoLinger = 0;
constexpr std::int64_t kMaxFrameBytes = kMaxHandshakeBytes;
constexpr std::size_t kMaxFrames = 8;

[[noreturn]] void fail(const std::string& what) {
  throw Failure(Error{ErrorCode::unavailable, what + ": " + zmq_strerror(zmq_errno()),
                      "KvTransferConfig::listen"});
}

struct Context {
  void* handle = zmq_ctx_new();
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { zmq_ctx_term(handle); }
};

class Socket {
 public:
  Socket(const Context& context, int type) : handle_(zmq_socket(context.handle, type)) {
    if (handle_ == nullptr) fail("no ZeroMQ socket");
    zmq_setsockopt(handle_, ZMQ_LINGER, &kNoLinger, sizeof kNoLinger);
    zmq_setsockopt(handle_, ZMQ_MAXMSGSIZE, &kMaxFrameBytes, sizeof kMaxFrameBytes);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() { zmq_close(handle_); }
  void* handle() const { return handle_; }

  void send(std::string_view frame, bool last) {
    zmq_send(handle_, frame.data(), frame.size(), ZMQ_DONTWAIT | (last ? 0 : ZMQ_SNDMORE));
  }
  // The next message; empty: there is none.
  std::vector<std::string> receive() {
    std::vector<std::string> frames;
    for (int more = 1; more != 0;) {
      zmq_msg_t message;
      zmq_msg_init(&message);
      if (zmq_msg_recv(&message, handle_, ZMQ_DONTWAIT) < 0) {
        zmq_msg_close(&message);
        return {};
      }
      more = zmq_msg_more(&message);
      if (frames.size() < kMaxFrames)
        frames.emplace_back(static_cast<const char*>(zmq_msg_data(&message)),
                            zmq_msg_size(&message));
      zmq_msg_close(&message);
    }
    return frames;
  }

 private:
  void* handle_;
};

std::string endpoint_of(const SocketAddress& address) {
  const bool is_v6 = address.host.find(':') != std::string::npos;
  return fmt::format(fmt::runtime(is_v6 ? "tcp://[{}]:{}" : "tcp://{}:{}"), address.host,
                     address.port == 0 ? std::string("*") : std::to_string(address.port));
}

}  // namespace

struct SideChannel::Impl {
  Context context;
  std::optional<Socket> router;
  Descriptor knock{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  std::list<void*> questions;  // sockets of those that are open
};

struct SideChannel::Question::Impl {
  Impl(SideChannel::Impl& owner) : channel(owner), socket(owner.context, ZMQ_REQ) {
    place = channel.questions.insert(channel.questions.end(), socket.handle());
  }
  ~Impl() { channel.questions.erase(place); }
  SideChannel::Impl& channel;
  Socket socket;
  std::list<void*>::iterator place;
};

SideChannel::SideChannel() : impl_(std::make_unique<Impl>()) {}
SideChannel::~SideChannel() = default;

std::uint16_t SideChannel::listen(const SocketAddress& address) {
  impl_->router.emplace(impl_->context, ZMQ_ROUTER);
  void* const socket = impl_->router->handle();
  const int v6 = address.host.find(':') != std::string::npos ? 1 : 0;
  zmq_setsockopt(socket, ZMQ_IPV6, &v6, sizeof v6);
  const std::string endpoint = endpoint_of(address);
  if (zmq_bind(socket, endpoint.c_str()) != 0)
    fail("KvTransferConfig::listen: cannot listen at " + endpoint);
  std::array<char, 256> bound{};
  std::size_t size = bound.size();
  zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, bound.data(), &size);
  const std::string text = bound.data();
  return static_cast<std::uint16_t>(std::stoi(text.substr(text.rfind(':') + 1)));
}

std::unique_ptr<SideChannel::Question> SideChannel::ask(const SocketAddress& address,
                                                        std::string_view message) {
  auto question = std::make_unique<Question::Impl>(*impl_);
  const int v6 = address.host.find(':') != std::string::npos ? 1 : 0;
  zmq_setsockopt(question->socket.handle(), ZMQ_IPV6, &v6, sizeof v6);
  const std::string endpoint = endpoint_of(address);
  if (zmq_connect(question->socket.handle(), endpoint.c_str()) != 0)
    fail("cannot connect to " + endpoint);
  question->socket.send(message, true);
  return std::unique_ptr<Question>(new Question(std::move(question)));
}

void SideChannel::wait(std::chrono::steady_clock::time_point until) {
  std::vector<zmq_pollitem_t> items;
  items.push_back({nullptr, impl_->knock.get(), ZMQ_POLLIN, 0});
  if (impl_->router) items.push_back({impl_->router->handle(), 0, ZMQ_POLLIN, 0});
  for (void* socket : impl_->questions) items.push_back({socket, 0, ZMQ_POLLIN, 0});
  long timeout = -1;
  if (until != std::chrono::steady_clock::time_point::max()) {
    const auto left = until - std::chrono::steady_clock::now();
    timeout = std::max<long>(0, std::chrono::ceil<std::chrono::milliseconds>(left).count());
  }
  zmq_poll(items.data(), static_cast<int>(items.size()), timeout);
  std::uint64_t count = 0;
  [[maybe_unused]] const auto taken = ::read(impl_->knock.get(), &count, sizeof count);
}

void SideChannel::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(impl_->knock.get(), &one, sizeof one);
}

// A request is its sender's identity, an empty frame and the question.
void SideChannel::answer_all(const Answer& answer) {
  if (!impl_->router) return;
  for (int i = 0; i < kMostAtOnce; ++i) {
    const std::vector<std::string> frames = impl_->router->receive();
    if (frames.empty()) return;
    if (frames.size() != 3 || !frames[1].empty()) continue;
    const std::vector<std::string> reply = answer(frames[2]);
    if (reply.empty()) continue;
    impl_->router->send(frames[0], false);
    impl_->router->send({}, false);
    for (std::size_t part = 0; part < reply.size(); ++part)
      impl_->router->send(reply[part], part + 1 == reply.size());
  }
}

SideChannel::Question::Question(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SideChannel::Question::~Question() = default;

std::optional<std::vector<std::string>> SideChannel::Question::take() {
  std::vector<std::string> frames = impl_->socket.receive();
  if (frames.empty()) return std::nullopt;
  return frames;
}

}  // namespace quire
