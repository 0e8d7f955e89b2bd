#pragma once
// The bootstrap server of vLLM's Mooncake connector: HTTP that says at which addresses the ranks of
// a prefill server are asked. Pure.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/wire/socket_address.h"

namespace quire {

inline constexpr std::size_t kMaxBootstrapBytes = 1 << 20;
inline constexpr std::size_t kMaxRequestHeadBytes = 8 << 10;

struct MooncakeWorkers {
  std::string engine;
  std::vector<SocketAddress> ranks;  // by rank of tensor parallelism
};

// {"0": {"engine_id": …, "worker_addr": {"0": {"0": "tcp://host:port"}}}}: by data parallel rank,
// tensor rank, pipeline rank.
std::string bootstrap_json(int engine, const MooncakeWorkers& workers);
// Who is in it; none where it cannot be read.
std::vector<std::string> bootstrap_engines(std::string_view json);
// The one of that name. Errors say what there is instead.
Result<MooncakeWorkers> find_workers(std::string_view json, std::string_view engine);

// "http://host:port" with nothing behind it.
Result<SocketAddress> parse_bootstrap_address(std::string_view text);

std::string http_question(const SocketAddress& address);
// The body of a whole reply with status 200.
Result<std::string> http_body(std::string_view reply);
// The whole reply to a request of which the head is there; `workers` is what /query says.
std::string http_reply(std::string_view head, std::string_view workers);

}  // namespace quire
