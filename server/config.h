#pragma once
// What the HTTP side is told at start-up.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/spelling.h"
#include "server/http/cors.h"
#include "server/http/key_file.h"

namespace quire {

struct HttpLimits {
  std::size_t header_bytes = 32 * 1024;
  std::size_t body_bytes = 32 * 1024 * 1024;
  std::size_t body_bytes_in_flight = 512 * 1024 * 1024;  // of all requests that are being read
  std::size_t max_connections = 16 * 1024;
  std::size_t probe_connections = 64;                   // beyond these: for probes alone
  std::size_t connections_per_address = 0;              // likewise beyond these; 0: as many as there are
  std::chrono::milliseconds header_timeout{15'000};      // from its first byte to its last
  std::chrono::milliseconds body_timeout{60'000};        // the same for the body
  std::chrono::milliseconds keep_alive_timeout{75'000};  // between two requests
  std::chrono::milliseconds write_timeout{300'000};      // a client that reads nothing
};

// Whether TLS clients show certificates; as Python's ssl counts them.
enum class ClientCertificates : std::uint8_t { none, optional, required };

// Of the Responses API, kept in memory for previous_response_id; the oldest go first.
struct StoredResponses {
  std::size_t count = 1000;
  std::size_t bytes = 64 * 1024 * 1024;
};

struct ServerConfig {
  std::string host = "0.0.0.0";
  int port = 8000;  // 0: any
  std::string uds;  // listen on this Unix socket instead
  std::string ssl_certfile;
  std::string ssl_keyfile;
  std::string ssl_ca_certs;           // whose certificates clients may show
  ClientCertificates ssl_cert_reqs = ClientCertificates::none;
  HttpLimits limits;
  StoredResponses stored_responses;

  std::vector<std::string> served_model_names;  // not empty; the first is what replies say
  std::string model_root;                       // the directory, as /v1/models shows it
  std::vector<std::string> api_keys;            // empty: open
  std::vector<std::string> metrics_api_keys;    // of /metrics; empty: open
  std::vector<std::string> admin_api_keys;      // of /debug and /reset_prefix_cache; empty: api_keys
  std::vector<NamedKey> named_keys;             // of --api-key-file
  CorsConfig cors;                              // closed
  std::vector<std::string> allowed_hosts;       // see HostGuard; * for all
  bool access_log = false;                      // a line per request
  std::vector<std::string> unlogged_paths;      // but for those of these
  std::chrono::milliseconds shutdown_timeout{30'000};
  Spelling spelling = nullptr;           // of fields in texts for clients
  bool keep_after_engine_death = false;  // answer 503 forever instead of ending
  std::chrono::milliseconds drain_delay{0};         // not ready, but still accepting
  std::chrono::milliseconds stall_timeout{120'000};  // of an engine that says nothing; 0: never
};

}  // namespace quire
