// Lines beyond the plain one: engines that dial, TLS, engines that leave, lives of an engine.

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "engine/wire/connection.h"
#include "engine/wire/socket_file.h"
#include "engine/wire/socket_source.h"
#include "tests/engine/wire/certificates.h"
#include "tests/engine/wire/socket_line.h"

namespace quire::test {
namespace {

using std::chrono::milliseconds;

// What is logged meanwhile.
class LogLines {
 public:
  LogLines() : file_(std::tmpfile()), kept_(::dup(STDERR_FILENO)) {
    REQUIRE(file_ != nullptr);
    ::dup2(::fileno(file_), STDERR_FILENO);
  }
  ~LogLines() {
    log::flush(milliseconds(1000));
    ::dup2(kept_.get(), STDERR_FILENO);
    std::fclose(file_);
  }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;

  // Within ten seconds.
  void expect(const std::string& text) const {
    std::string all;
    for (int i = 0; i < 1000 && all.find(text) == all.npos; ++i) {
      log::flush(milliseconds(10));
      all.assign(1 << 16, '\0');
      const ssize_t size = ::pread(::fileno(file_), all.data(), all.size(), 0);
      all.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
      if (all.find(text) == all.npos) std::this_thread::sleep_for(milliseconds(10));
    }
    CHECK_THAT(all, Catch::Contains(text));
  }

 private:
  std::FILE* file_;
  const Descriptor kept_;
};

// A port that was free a moment ago.
SocketAddress new_tcp_address() {
  const auto probe = listen_at(*parse_socket_address("tcp://127.0.0.1:0"));
  REQUIRE(probe.has_value());
  return {{}, "127.0.0.1", port_of(*probe)};
}

SocketOptions options(std::shared_ptr<const TlsContext> tls = nullptr) {
  return {.secret = "a", .silence = milliseconds(500), .tls = std::move(tls)};
}

std::shared_ptr<const TlsContext> tls(TlsContext::Files files) {
  std::signal(SIGPIPE, SIG_IGN);  // as the programs do: OpenSSL writes to whoever has left
  auto made = TlsContext::make(files);
  if (!made) throw Failure(made.error());
  return *made;
}

void check_tokens_cross(SocketLine& line) {
  line.become_ready();
  line.send(small_request(5));
  const auto add = line.command<AddRequest>();
  CHECK(add.prompt == std::vector<TokenId>{1, 2, 3});
  StepOutput step;
  step.tokens = {{add.id, 42}};
  line.engine->publish(std::move(step));
  const auto got = line.event<StepOutput>();
  REQUIRE(got.tokens.size() == 1);
  CHECK(got.tokens[0].token == 42);
}

TEST_CASE("an engine may dial its front end", "[engine][wire][socket]") {
  const SocketAddress address = new_unix_address();
  SocketLine line;
  line.engine = make_socket_engine_end({.socket = options(), .dial = {address}});
  std::this_thread::sleep_for(milliseconds(80));  // it dials before anybody listens, and again
  auto ends = make_listening_client_ends(address, 1, options());
  line.client = std::move(ends.front());
  check_tokens_cross(line);
  ::unlink(address.path.c_str());
}

TEST_CASE("more engines dial than are expected, and one of them takes a lost one's place",
          "[engine][wire][socket]") {
  const SocketAddress address = new_unix_address();
  const LogLines log;
  auto ends = make_listening_client_ends(address, 1, options());
  SocketLine line;
  line.client = std::move(ends.front());
  line.engine = make_socket_engine_end({.socket = options(), .dial = {address}});
  line.become_ready();
  auto spare = make_socket_engine_end({.socket = options(), .dial = {address}});
  spare->publish(Hello{EngineId{0}, "spare"});
  log.expect("engine.stands_by");
  line.engine.reset();
  CHECK_THAT(line.event<EngineDead>().error, Catch::Contains("closed"));
  CHECK(line.event<Hello>().version == "spare");
  ::unlink(address.path.c_str());
}

TEST_CASE(
    "who dials a server that has its engines is sent away in time, and with another secret at once",
    "[engine][wire][socket]") {
  const SocketAddress address = new_tcp_address();
  const LogLines log;
  auto ends = make_listening_client_ends(address, 1, options());
  SocketLine line;
  line.client = std::move(ends.front());
  line.engine = make_socket_engine_end({.socket = options(), .dial = {address}});
  line.become_ready();
  const Descriptor silent = std::move(*begin_connect(address));
  auto stranger = make_socket_engine_end({.socket = {.secret = "b"}, .dial = {address}});
  log.expect("engine.sent_away");
  log.expect("127.0.0.1");
  log.expect("secret");
  pollfd polled{silent.get(), POLLIN, 0};
  char byte = 0;
  ssize_t count = 1;
  while (count > 0) {
    REQUIRE(::poll(&polled, 1, 10'000) == 1);
    count = ::recv(silent.get(), &byte, 1, 0);
  }
  log.expect("does not answer as an engine would");
}

TEST_CASE("a socket's file goes with its listener, and another one's stays",
          "[engine][wire][socket]") {
  const SocketAddress address = new_unix_address();
  struct stat info {};
  {
    const Descriptor listener = std::move(*listen_at(address));
    const SocketFile file(address);
    CHECK(::lstat(address.path.c_str(), &info) == 0);
  }
  CHECK(::lstat(address.path.c_str(), &info) != 0);
  {
    const Descriptor listener = std::move(*listen_at(address));
    const SocketFile file(address);
    ::unlink(address.path.c_str());
    REQUIRE(::mkdir(address.path.c_str(), 0700) == 0);
  }
  CHECK(::rmdir(address.path.c_str()) == 0);
}

TEST_CASE("who dials and says nothing keeps no engine out", "[engine][wire][socket]") {
  const bool is_unix = GENERATE(true, false);
  const SocketAddress address = is_unix ? new_unix_address() : new_tcp_address();
  auto ends = make_listening_client_ends(address, 1, options());
  const auto connect = [&](int count) {
    std::vector<Descriptor> sockets;
    for (int i = 0; i < count; ++i) sockets.push_back(std::move(*begin_connect(address)));
    return sockets;
  };
  auto silent = connect(40);
  for (auto& liar : connect(10)) {
    silent.push_back(std::move(liar));
    [[maybe_unused]] const auto sent = ::send(silent.back().get(), "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL);
  }
  const auto begun = std::chrono::steady_clock::now();
  SocketLine line;
  line.client = std::move(ends.front());
  line.engine = make_socket_engine_end({.socket = options(), .dial = {address}});
  check_tokens_cross(line);
  CHECK(std::chrono::steady_clock::now() - begun < milliseconds(4000));  // of one silent one's time
  auto later = connect(30);  // they are let in nowhere, and the line holds
  line.send(small_request(6));
  CHECK(line.command<AddRequest>().prompt == std::vector<TokenId>{1, 2, 3});
  if (is_unix) ::unlink(address.path.c_str());
}

TEST_CASE("TLS carries a line either way round", "[engine][wire][socket][tls]") {
  const Certificates files;
  const auto server = tls({files.certificate(), files.key(), {}});
  const auto client = tls({{}, {}, files.authority()});
  const SocketAddress address = new_tcp_address();
  SocketLine line;
  SECTION("the front end dials") {
    line.engine = make_socket_engine_end({.socket = options(server), .listen = address});
    line.client = make_socket_client_end(address, options(client));
    check_tokens_cross(line);
  }
  SECTION("the engine dials") {
    line.client = std::move(make_listening_client_ends(address, 1, options(server)).front());
    line.engine = make_socket_engine_end({.socket = options(client), .dial = {address}});
    check_tokens_cross(line);
  }
  SECTION("both show certificates") {
    const auto both = tls({files.certificate(), files.key(), files.authority()});
    line.engine = make_socket_engine_end({.socket = options(both), .listen = address});
    line.client = make_socket_client_end(address, options(both));
    check_tokens_cross(line);
  }
  SECTION("much at once") {
    line.engine = make_socket_engine_end({.socket = options(server), .listen = address});
    line.client = make_socket_client_end(address, options(client));
    line.become_ready();
    AddRequest large = small_request(6);
    large.prompt.assign(2'000'000, 1'000'000);
    line.send(large);
    CHECK(line.command<AddRequest>().prompt.size() == 2'000'000);
  }
}

// What the front end is told when it dials this engine.
std::string refusal(const SocketOptions& of_engine, const SocketOptions& of_front_end) {
  const SocketAddress address = new_tcp_address();
  SocketLine line;
  line.engine = make_socket_engine_end({.socket = of_engine, .listen = address});
  line.engine->publish(Hello{EngineId{0}, "test"});
  line.client = make_socket_client_end(address, of_front_end);
  return line.event<EngineDead>().error;
}

TEST_CASE("what TLS refuses is refused in words", "[engine][wire][socket][tls]") {
  const Certificates files, others;
  const auto server = tls({files.certificate(), files.key(), {}});
  const auto client = tls({{}, {}, files.authority()});
  CHECK_THAT(refusal(options(server), options(tls({{}, {}, others.authority()}))),
             Catch::Contains("certificate is refused"));
  CHECK_THAT(refusal(options(), options(client)), Catch::Contains("does not speak TLS"));
  SocketOptions other_secret = options(client);
  other_secret.secret = "b";
  CHECK_THAT(refusal(options(server), other_secret), Catch::Contains("secret"));
}

TEST_CASE("a certificate of another host is refused", "[engine][wire][socket][tls]") {
  const Certificates files;
  SocketAddress address = new_tcp_address();
  SocketLine line;
  line.engine = make_socket_engine_end(
      {.socket = options(tls({files.certificate(), files.key(), {}})), .listen = address});
  address.host = "localhost";  // it is made out to 127.0.0.1
  line.client = make_socket_client_end(address, options(tls({{}, {}, files.authority()})));
  CHECK_THAT(line.event<EngineDead>().error, Catch::Contains("certificate is refused"));
}

TEST_CASE("TLS files that do not fit are refused by their field", "[engine][wire][tls]") {
  const Certificates files, others;
  CHECK(TlsContext::make({files.certificate(), others.key(), {}}).error().field ==
        "TlsContext::Files::key");
  CHECK(TlsContext::make({"/nowhere", files.key(), {}}).error().field == "TlsContext::Files::certificate");
  CHECK(TlsContext::make({{}, {}, "/nowhere"}).error().field == "TlsContext::Files::authorities");
}

TEST_CASE("what is meant for a former life of an engine does not reach the next one",
          "[engine][wire][socket]") {
  const SocketAddress address = new_unix_address();
  SocketLine line;
  line.engine = make_socket_engine_end({.socket = options(), .listen = address});
  line.client = make_socket_client_end(address, options());
  line.become_ready();
  line.engine.reset();
  line.event<EngineDead>();
  line.engine = make_socket_engine_end({.socket = options(), .listen = address});
  line.engine->publish(Hello{EngineId{0}, "test"});
  line.event<Hello>();
  // The connection is there, and the one who submits has not heard of it yet.
  Command late = small_request(7);
  CHECK_FALSE(line.client->send(late));
  line.send(AbortRequest{RequestId{7}});
  line.send(Configure{"test", {}});
  line.command<Configure>();
  line.engine->publish(Ready{});
  line.event<Ready>();
  line.send(small_request(8));
  line.command<AddRequest>();
  CHECK(line.engine->num_live() == 1);
  ::unlink(address.path.c_str());
}

TEST_CASE("a frame longer than any message ends the connection", "[engine][wire][socket]") {
  const SocketAddress address = new_unix_address();
  auto engine = make_socket_engine_end({.socket = options(), .listen = address});
  engine->publish(Hello{EngineId{0}, "test"});
  for (const std::string& bytes : {std::string("\xff\xff\xff\xff", 4),       // 4 GiB to come
                                   std::string("\x02\0\0\0\x0a\x7f", 6)}) {  // a cut-off message
    auto peer = dial(address, WireConnection::Role::front_end, options());
    REQUIRE(peer.has_value());
    std::vector<std::string> frames;
    while (frames.empty()) {
      REQUIRE(peer->write().has_value());
      REQUIRE(peer->read(frames).has_value());
    }
    REQUIRE(::write(peer->descriptor(), bytes.data(), bytes.size()) ==
            static_cast<ssize_t>(bytes.size()));
    bool closed = false;
    for (int i = 0; i < 1000 && !closed; ++i) {
      closed = !peer->read(frames).has_value();
      std::this_thread::sleep_for(milliseconds(2));
    }
    CHECK(closed);
  }
  SocketLine line{std::move(engine), make_socket_client_end(address, options())};
  check_tokens_cross(line);  // others are served as before
  ::unlink(address.path.c_str());
}

}  // namespace
namespace {

// While it lives, this process can open nothing more.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit less = before_;
    less.rlim_cur = 200;
    ::setrlimit(RLIMIT_NOFILE, &less);
    for (int one; (one = ::dup(STDERR_FILENO)) >= 0;) taken_.emplace_back(one);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
  std::vector<Descriptor> taken_;
};

double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

TEST_CASE("an engine without descriptors waits for some, and does not spin",
          "[engine][wire][socket]") {
  const SocketAddress address = new_unix_address();
  SocketLine line;
  line.engine = make_socket_engine_end({.socket = options(), .listen = address});
  int connected = -1;
  double seconds = 0;
  {  // without checks: what checks them under a sanitizer opens pipes
    const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const Descriptor another(socket);
    const NoDescriptors none;
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    address.path.copy(name.sun_path, sizeof name.sun_path - 1);
    connected = ::connect(socket, reinterpret_cast<const sockaddr*>(&name), sizeof name);
    const double before = processor_seconds();
    std::this_thread::sleep_for(milliseconds(400));
    seconds = processor_seconds() - before;
  }
  REQUIRE(connected == 0);
  CHECK(seconds < 0.1);
  line.client = make_socket_client_end(address, options());
  check_tokens_cross(line);
}

}  // namespace quire::test
