#include "engine/kv_mooncake/bootstrap.h"

#include <fmt/format.h>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <charconv>
#include <map>

#include "base/json.h"
#include "base/json_text.h"

namespace quire {
namespace {

namespace http = boost::beast::http;
constexpr int kMostRanks = 1024;

Error refuse(const std::string& why) {
  return {ErrorCode::invalid_argument, "the bootstrap server: " + why, {}};
}

int rank_of(std::string_view name, const Json& value) {
  int rank = -1;
  const auto read = std::from_chars(name.data(), name.data() + name.size(), rank);
  if (read.ec != std::errc() || read.ptr != name.data() + name.size() || rank < 0 ||
      rank >= kMostRanks)
    value.fail("stands under a name that is no rank");
  return rank;
}

MooncakeWorkers read_workers(const Json& entry) {
  MooncakeWorkers workers;
  workers.engine = entry.need_text("engine_id");
  std::map<int, SocketAddress> by_rank;
  for (const auto& [rank, stages] : entry.at("worker_addr").members()) {
    if (stages.members().size() != 1 || !stages.has({"0"}))
      stages.fail("has several pipeline stages; one is read");
    const Json place = stages.at("0");
    const auto address = parse_socket_address(place.as_string());
    if (!address || address->is_unix() || address->port == 0)
      place.fail("must be tcp://HOST:PORT, is " + place.describe());
    by_rank[rank_of(rank, stages)] = *address;
  }
  for (auto& [rank, address] : by_rank) {
    if (rank != static_cast<int>(workers.ranks.size()))
      entry.at("worker_addr").fail("lacks a rank");
    workers.ranks.push_back(std::move(address));
  }
  if (workers.ranks.empty()) entry.at("worker_addr").fail("names nobody");
  return workers;
}

std::string reply_of(std::string_view status, std::string_view body) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: "
      "close\r\n\r\n{}",
      status, body.size(), body);
}

}  // namespace

std::string bootstrap_json(int engine, const MooncakeWorkers& workers) {
  std::string name;
  append_json_text(name, workers.engine);
  std::string json = fmt::format(R"({{"{}":{{"engine_id":{},"worker_addr":{{)", engine, name);
  for (std::size_t rank = 0; rank < workers.ranks.size(); ++rank) {
    const SocketAddress& at = workers.ranks[rank];
    const bool is_v6 = at.host.find(':') != std::string::npos;
    std::string place;
    append_json_text(place, fmt::format(fmt::runtime(is_v6 ? "tcp://[{}]:{}" : "tcp://{}:{}"),
                                        at.host, at.port));
    json += fmt::format(R"({}"{}":{{"0":{}}})", rank > 0 ? "," : "", rank, place);
  }
  return json + "}}}";
}

std::vector<std::string> bootstrap_engines(std::string_view json) try {
  const JsonDocument document(std::string(json), {});
  std::vector<std::string> engines;
  for (const auto& [rank, entry] : document.object().members())
    engines.push_back(entry.need_text("engine_id"));
  return engines;
} catch (const Failure&) {
  return {};
}

Result<MooncakeWorkers> find_workers(std::string_view json, std::string_view engine) try {
  const JsonDocument document(std::string(json), {});
  std::string others;
  for (const auto& [rank, entry] : document.object().members()) {
    if (entry.need_text("engine_id") == engine) return read_workers(entry);
    others += (others.empty() ? "" : ", ") + entry.need_text("engine_id");
  }
  return refuse(
      fmt::format("knows no engine {}, but {}", engine, others.empty() ? "none" : others));
} catch (const Failure& failure) {
  return refuse(failure.what());
}

Result<SocketAddress> parse_bootstrap_address(std::string_view text) {
  constexpr std::string_view kScheme = "http://";
  if (!text.starts_with(kScheme)) return refuse("must be http://HOST:PORT");
  text.remove_prefix(kScheme.size());
  if (text.ends_with('/')) text.remove_suffix(1);
  auto address = parse_socket_address(text);
  if (!address || address->is_unix() || address->port == 0 || text.starts_with("tcp:"))
    return refuse("must be http://HOST:PORT");
  return address;
}

std::string http_question(const SocketAddress& address) {
  const bool is_ipv6 = address.host.find(':') != std::string::npos;
  return fmt::format(
      "GET /query HTTP/1.1\r\nHost: {}:{}\r\nAccept: application/json\r\nConnection: "
      "close\r\n\r\n",
      is_ipv6 ? "[" + address.host + "]" : address.host, address.port);
}

Result<std::string> http_body(std::string_view reply) {
  if (reply.empty()) return refuse("it says nothing");  // which Beast takes for a whole reply
  http::response_parser<http::string_body> parser;
  parser.eager(true);
  parser.body_limit(kMaxBootstrapBytes);
  boost::system::error_code error;
  while (!reply.empty() && !parser.is_done()) {
    const std::size_t used = parser.put(boost::asio::buffer(reply.data(), reply.size()), error);
    reply.remove_prefix(used);
    if (error == http::error::need_more && used > 0) continue;
    if (error) break;
  }
  if ((!error || error == http::error::need_more) && !parser.is_done()) parser.put_eof(error);
  if (!parser.is_done()) return refuse("its reply is no HTTP, too long or cut off");
  if (parser.get().result() != http::status::ok)
    return refuse(fmt::format("answers with status {}", parser.get().result_int()));
  return std::move(parser.get().body());
}

std::string http_reply(std::string_view head, std::string_view workers) {
  const std::string_view line = head.substr(0, head.find('\r'));
  if (line.starts_with("GET /query HTTP/1.")) return reply_of("200 OK", workers);
  if (line.starts_with("POST /register "))
    return reply_of("403 Forbidden",
                    R"({"detail":"this server's ranks are its own; no other registers here"})");
  return reply_of("404 Not Found", R"({"detail":"GET /query is answered here"})");
}

}  // namespace quire
