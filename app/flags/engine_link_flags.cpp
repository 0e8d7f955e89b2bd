#include "app/flags/engine_link_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "app/flags/secret_file.h"
#include "base/log.h"

namespace quire {
namespace {

Error refuse(const char* flag, std::string why) {
  return {ErrorCode::invalid_argument, std::move(why), flag};
}

Result<void> check_tls(const TlsContext& tls, const std::vector<SocketAddress>& dialled,
                       const std::vector<SocketAddress>& listened) {
  const auto is_tcp = [](const SocketAddress& address) { return !address.is_unix(); };
  const bool dials = std::ranges::any_of(dialled, is_tcp);
  const bool listens = std::ranges::any_of(listened, is_tcp);
  if (!dials && !listens)
    return refuse("--engine-ssl-ca-certs",
                  "has no effect: what crosses a Unix socket stays on this machine and is not "
                  "encrypted");
  if (dials && !tls.can_dial())
    return refuse("--engine-ssl-ca-certs",
                  "is needed to check the certificate of whoever is connected to");
  if (listens && !tls.can_accept())
    return refuse("--engine-ssl-certfile",
                  "is needed, with --engine-ssl-keyfile, for those who connect to this address");
  return {};
}

Result<void> check_plain(const EngineLinkFlags& flags, const SocketAddress& address) {
  if (address.is_loopback() || flags.plaintext) return {};
  return refuse("--engine-ssl-certfile",
                address.text() +
                    " leads to other machines: give --engine-ssl-* for TLS, or --engine-plaintext "
                    "where nobody can listen on the way");
}

}  // namespace

void add_engine_link_flags(CLI::App& app, EngineLinkFlags& flags) {
  app.add_option("--engine-secret-file", flags.secret_file,
                 "File with a secret of at least 16 characters that servers and engines must both "
                 "know");
  auto* cert = app.add_option("--engine-ssl-certfile", flags.tls.certificate,
                              "TLS between server and engines: certificate chain, PEM, of the side "
                              "that listens; of the other one too where it is asked for");
  auto* key = app.add_option("--engine-ssl-keyfile", flags.tls.key, "Its private key, PEM");
  cert->needs(key);
  key->needs(cert);
  app.add_option("--engine-ssl-ca-certs", flags.tls.authorities,
                 "PEM file of the authority that the other side's certificate must be signed by");
  app.add_flag(
      "--engine-plaintext", flags.plaintext,
      "Allow TCP to other machines without TLS: the secret is still asked for, but prompts "
      "and answers can be read on the way");
}

Result<SocketOptions> engine_link(const EngineLinkFlags& flags,
                                  const std::vector<SocketAddress>& dialled,
                                  const std::vector<SocketAddress>& listened) {
  auto secret = read_secret(flags.secret_file);
  if (!secret) return refuse("--engine-secret-file", secret.error().detail);
  SocketOptions options{.secret = std::move(*secret)};
  const bool has_tls = !flags.tls.certificate.empty() || !flags.tls.authorities.empty();
  if (has_tls) {
    auto tls = TlsContext::make(flags.tls);
    if (!tls) return tls.error();
    options.tls = std::move(*tls);
    if (auto ok = check_tls(*options.tls, dialled, listened); !ok) return ok.error();
  }
  for (const auto* addresses : {&dialled, &listened}) {
    for (const SocketAddress& address : *addresses) {
      if (options.secret.empty() && !address.is_loopback())
        return refuse("--engine-secret-file", "is needed: other machines reach " + address.text());
      if (has_tls) continue;
      if (auto ok = check_plain(flags, address); !ok) return ok.error();
    }
  }
  return options;
}

void warn_if_plaintext(const SocketOptions& link, const std::vector<SocketAddress>& dialled,
                       const std::vector<SocketAddress>& listened) {
  if (link.tls != nullptr) return;
  for (const auto* addresses : {&dialled, &listened}) {
    for (const SocketAddress& address : *addresses) {
      if (address.is_loopback()) continue;
      log::warn("engine.plaintext", {{"address", address.text()},
                                     {"because",
                                      "whoever is on the way can read prompts and "
                                      "answers (--engine-plaintext)"}});
    }
  }
}

}  // namespace quire
