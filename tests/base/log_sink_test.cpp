#include "base/log_sink.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <csignal>
#include <string>
#include <thread>

using namespace quire;
using namespace std::chrono_literals;

namespace {

struct Pipe {
  Pipe() { REQUIRE(::pipe(ends.data()) == 0); }
  ~Pipe() {
    close_reader();
    ::close(ends[1]);
  }
  void close_reader() {
    if (ends[0] >= 0) ::close(ends[0]);
    ends[0] = -1;
  }
  std::string read_some() const {
    std::string bytes(1 << 16, '\0');
    const ssize_t size = ::read(ends[0], bytes.data(), bytes.size());
    bytes.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    return bytes;
  }
  std::array<int, 2> ends{};
};

std::string missing(std::uint64_t lines) { return "missing " + std::to_string(lines) + "\n"; }

}  // namespace

TEST_CASE("lines come out in order", "[base][log]") {
  Pipe pipe;
  log::Sink sink(pipe.ends[1], missing);
  std::string expected;
  for (int i = 0; i < 100; ++i) {
    expected += std::to_string(i) + "\n";
    sink.push(std::to_string(i) + "\n");
  }
  sink.flush(10s);
  CHECK(pipe.read_some() == expected);
}

TEST_CASE("who logs never waits for a reader that does not read; what is missing is counted",
          "[base][log]") {
  Pipe pipe;
  log::Sink sink(pipe.ends[1], missing);
  const std::string line(1023, 'x');
  constexpr std::size_t kLines = 5000;  // five times what the queue holds
  for (std::size_t i = 0; i < kLines; ++i) sink.push(line + "\n");
  sink.flush(10ms);
  std::size_t written = 0, lost = 0;
  for (std::string text; written + lost < kLines;) {
    text += pipe.read_some();
    for (std::size_t end = text.find('\n'); end != text.npos; end = text.find('\n')) {
      const bool says_missing = text.starts_with("missing ");
      says_missing ? lost += std::stoul(text.substr(8)) : ++written;
      text.erase(0, end + 1);
    }
  }
  CHECK(written + lost == kLines);
  CHECK(lost > kLines / 4);
  sink.push("back\n");
  sink.flush(10s);
  CHECK(pipe.read_some() == "back\n");
}

TEST_CASE("a reader that has gone loses the lines and nothing else", "[base][log]") {
  std::signal(SIGPIPE, SIG_IGN);
  Pipe pipe;
  log::Sink sink(pipe.ends[1], missing);
  pipe.close_reader();
  for (int i = 0; i < 10; ++i) sink.push("nobody reads this\n");
  sink.flush(10s);
}

TEST_CASE("the end does not wait for a write that hangs", "[base][log]") {
  Pipe pipe;
  const auto begin = std::chrono::steady_clock::now();
  {
    log::Sink sink(pipe.ends[1], missing);
    sink.push(std::string(1 << 20, 'x'));
    sink.flush(20ms);
  }
  CHECK(std::chrono::steady_clock::now() - begin < 5s);
  // Lets the thread out of its write before the pipe goes.
  for (std::size_t size = 0; size < (1 << 20);) size += pipe.read_some().size();
}
