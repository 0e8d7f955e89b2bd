#include "app/flags/listening_flags.h"

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "app/args/flag_kinds.h"
#include "base/error.h"
#include "base/file.h"

namespace quire {
namespace {

constexpr std::size_t kMaxKeyFileBytes = 64u << 20;

std::vector<NamedKey> read_key_file(const std::string& path) {
  constexpr const char* kFlag = "--api-key-file";
  std::string text;
  try {
    text = read_text_file(path, kMaxKeyFileBytes);
  } catch (const Failure& failure) {
    throw CLI::ValidationError(kFlag, failure.what());
  }
  auto keys = parse_key_file(text);
  if (!keys) throw CLI::ValidationError(kFlag, path + ": " + keys.error().detail);
  return std::move(*keys);
}

void add_cors_flags(CLI::App& app, CorsConfig& cors) {
  add_words(app, "--allowed-origins", cors.origins,
            "Origins whose web pages may use this server from a browser, such as "
            "https://chat.example; * for all (none)");
  add_words(app, "--allowed-methods", cors.methods,
            "Methods that those pages may use (GET POST OPTIONS)");
  add_words(app, "--allowed-headers", cors.headers, "Headers that those pages may send (all)");
  app.add_flag("--allow-credentials", cors.credentials,
               "Those pages may send cookies, for a proxy in front; needs origins by name");
}

}  // namespace

void add_listening_flags(CLI::App& app, ServerConfig& server) {
  auto* host = app.add_option("--host", server.host, "Address to listen on (0.0.0.0)")
                   ->transform([](std::string text) {  // an IPv6 address as in a URL
                     const bool is_bracketed = text.starts_with('[') && text.ends_with(']');
                     return is_bracketed ? text.substr(1, text.size() - 2) : text;
                   });
  auto* port = app.add_option("--port", server.port, "Port to listen on (8000); 0: any")
                   ->check(CLI::Range(0, 65535));
  app.add_option("--uds", server.uds, "Unix socket to listen on, instead of host and port")
      ->excludes(host)
      ->excludes(port);
  auto* cert = app.add_option("--ssl-certfile", server.ssl_certfile, "TLS: certificate chain, PEM");
  auto* key = app.add_option("--ssl-keyfile", server.ssl_keyfile, "TLS: private key, PEM");
  cert->needs(key)->excludes("--uds");
  key->needs(cert);
  app.add_option("--ssl-ca-certs", server.ssl_ca_certs,
                 "TLS: authorities whose certificates clients may show, PEM")
      ->needs(cert);
  const std::map<std::string, ClientCertificates> requirements{
      {"0", ClientCertificates::none},
      {"1", ClientCertificates::optional},
      {"2", ClientCertificates::required}};
  app.add_option("--ssl-cert-reqs", server.ssl_cert_reqs,
                 "TLS: whether clients show certificates; 0: no, 1: they may, 2: they must (0; with "
                 "--ssl-ca-certs 2)")
      ->transform(CLI::CheckedTransformer(requirements).description(""))
      ->type_name("N");
  app.add_option(
         "--api-key", server.api_keys,
         "Key that everything but probes, /version and /metrics asks for, as Authorization: "
         "Bearer or X-Api-Key; several may be given")
      ->envname("VLLM_API_KEY");
  app.add_option_function<std::string>(
         "--api-key-file",
         [&server](const std::string& path) { server.named_keys = read_key_file(path); },
         "Keys by their SHA-256, a line each: NAME SHA256 [concurrency=N] [requests-per-minute=N] "
         "[tokens-per-minute=N] [priority]")
      ->type_name("FILE");
  app.add_option("--admin-api-key", server.admin_api_keys,
                 "Key that /debug and /reset_prefix_cache ask for; several may be given. Without "
                 "one they ask for an --api-key");
  app.add_option("--metrics-api-key", server.metrics_api_keys,
                 "Key that /metrics asks for; several may be given");
  add_cors_flags(app, server.cors);
  add_host_names(
      app, "--allowed-hosts", server.allowed_hosts,
      "Names with a dot, beside this machine's, that a server on a loopback address without a key "
      "answers to; * for all (none)");
  app.add_option("--max-body-bytes", server.limits.body_bytes, "Largest request body (32 MiB)")
      ->check(CLI::Range(std::size_t{1024}, std::size_t{1} << 40));
  app.add_option("--max-body-bytes-in-flight", server.limits.body_bytes_in_flight,
                 "Bytes of all request bodies that are being read (512 MiB); more get 503")
      ->check(CLI::Range(std::size_t{1024}, std::size_t{1} << 50));
  app.add_option("--max-connections", server.limits.max_connections,
                 "Connections that may be open at a time (16384)")
      ->check(CLI::Range(1, 1 << 24));
  app.add_option("--max-connections-per-address", server.limits.connections_per_address,
                 "Connections of one address that may ask for more than probes; 0: all (0)");
  add_seconds(app, "--keep-alive-timeout", server.limits.keep_alive_timeout,
              "Close a connection after this long without a request (75)");
  add_seconds(app, "--request-timeout", server.limits.body_timeout,
              "Refuse a request whose body takes longer to arrive (60)",
              std::chrono::milliseconds(1));
  add_seconds(app, "--drain-delay", server.drain_delay,
              "After SIGTERM, /health says no for this long before connections are refused (0)");
  add_seconds(app, "--shutdown-timeout", server.shutdown_timeout,
              "After SIGTERM, running requests may take this long to finish (30)");
  app.add_flag("--keep-after-engine-death", server.keep_after_engine_death,
               "Where an engine has died, go on with the others, or answer 503, instead of ending with exit "
               "code 4");
}

}  // namespace quire
