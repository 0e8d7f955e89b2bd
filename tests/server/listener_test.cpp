#include "server/listener.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

using namespace quire;
namespace fs = std::filesystem;

namespace {

struct Folder {
  Folder() {
    std::string name = (fs::temp_directory_path() / "quire-listener-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path); }
  fs::path path;
};

struct Sockets {
  Folder folder;
  std::string path = folder.path / "q.sock";
  asio::io_context context;
  ServerConfig config;

  Sockets() { config.uds = path; }
  std::unique_ptr<Listener> listen() {
    return std::make_unique<Listener>(context.get_executor(), context.get_executor(), config);
  }
  bool connects() {
    boost::system::error_code error;
    asio::local::stream_protocol::socket(context).connect(
        asio::local::stream_protocol::endpoint(path), error);
    return !error;
  }
};

}  // namespace

TEST_CASE("a Unix socket is made, and taken away at the end", "[server][listener]") {
  Sockets sockets;
  auto listener = sockets.listen();
  CHECK(sockets.connects());
  listener.reset();
  CHECK_FALSE(fs::exists(sockets.path));
}

TEST_CASE("a second server on a live socket is refused and harms nothing", "[server][listener]") {
  Sockets sockets;
  const auto listener = sockets.listen();
  CHECK_THROWS_WITH(sockets.listen(), Catch::Contains("another server listens there"));
  CHECK(sockets.connects());
}

TEST_CASE("a socket whose server takes no connections is not waited for", "[server][listener]") {
  Sockets sockets;
  asio::io_context context;
  const asio::local::stream_protocol::endpoint endpoint(sockets.path);
  asio::local::stream_protocol::acceptor hung(context, endpoint, false);
  hung.listen(0);
  std::vector<asio::local::stream_protocol::socket> waiting;
  for (bool is_full = false; !is_full;) {  // its queue
    auto& one = waiting.emplace_back(context, asio::local::stream_protocol());
    one.native_non_blocking(true);
    is_full = ::connect(one.native_handle(), endpoint.data(), endpoint.size()) != 0;
  }
  CHECK_THROWS_WITH(sockets.listen(), Catch::Contains("another server listens there"));
}

TEST_CASE("a file that is no socket stays as it is", "[server][listener]") {
  Sockets sockets;
  std::ofstream(sockets.path) << "precious";
  CHECK_THROWS_WITH(sockets.listen(), Catch::Contains("not a socket"));
  std::string text;
  std::ifstream(sockets.path) >> text;
  CHECK(text == "precious");
}

TEST_CASE("a socket that a dead server left is replaced", "[server][listener]") {
  Sockets sockets;
  {
    asio::local::stream_protocol::acceptor dead(
        sockets.context, asio::local::stream_protocol::endpoint(sockets.path));
  }
  REQUIRE(fs::exists(sockets.path));
  const auto listener = sockets.listen();
  CHECK(sockets.connects());
}

TEST_CASE("at the end only the own socket is taken away", "[server][listener]") {
  Sockets sockets;
  auto first = sockets.listen();
  fs::remove(sockets.path);
  const auto second = sockets.listen();
  first.reset();
  CHECK(sockets.connects());
}

TEST_CASE("a path that is too long is refused by name", "[server][listener]") {
  Sockets sockets;
  sockets.config.uds = "/tmp/" + std::string(200, 'x');
  CHECK_THROWS_AS(sockets.listen(), Failure);
}
