#include "app/commands/proxy_main.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "app/args/failure_text.h"
#include "app/args/flag_kinds.h"
#include "app/args/flag_names.h"
#include "app/args/forgiving_args.h"
#include "base/error.h"
#include "base/log.h"
#include "proxy/proxy.h"

namespace quire {
namespace {

proxy::Proxy* running = nullptr;

void stop_running(int) { running->stop(); }

// A server's own address: clients say the paths, /v1 among them.
net::Url server_url(const std::string& text) {
  net::Url url = net::Url::parse(text);
  if (url.target.find('?') != std::string::npos)
    throw Failure(ErrorCode::invalid_argument,
                  "\"" + text + "\" has a query; a server's address ends before it");
  const auto trim = [&] {
    while (url.target.ends_with('/')) url.target.pop_back();
  };
  trim();
  if (url.target.ends_with("/v1")) url.target.resize(url.target.size() - 3);
  trim();
  return url;
}

std::vector<net::Url> urls_of(const char* flag, const std::vector<std::string>& texts) {
  std::vector<net::Url> urls;
  for (const std::string& text : texts) {
    try {
      urls.push_back(server_url(text));
    } catch (const Failure& failure) {
      throw CLI::ValidationError(flag, failure.what());
    }
  }
  return urls;
}

std::optional<proxy::ProxyOptions> parse(int argc, const char* const* argv, int& exit_code) {
  CLI::App app(
      "One address for servers that share requests: --kv-role prefill begins them, --kv-role "
      "decode "
      "goes on. Without --prefill requests are spread over --decode.",
      "quire proxy");
  std::vector<std::string> prefill, decode;
  std::string mode = "pull";
  int port = 8000;
  proxy::ProxyOptions options;
  app.add_option("--prefill", prefill,
                 "Servers that prefill: http://10.0.0.7:8001; may be given again")
      ->type_name("URL")
      ->delimiter(',');
  app.add_option("--decode", decode, "Servers that go on; may be given again")
      ->type_name("URL")
      ->delimiter(',')
      ->required();
  app.add_option("--host", options.host, "Address to listen at (127.0.0.1)");
  app.add_option("--port", port, "0: any that is free (8000)")->check(CLI::Range(0, 65535));
  app.add_option("--transfer-mode", mode,
                 "pull: a prompt is prefilled, then fetched; push: both servers are asked at once, "
                 "and it is sent while it is computed (pull)")
      ->check(CLI::IsMember({"pull", "push"}));
  app.add_option("--max-connections", options.max_connections,
                 "Clients at a time, a thread each (256)")
      ->check(CLI::Range(1, 4096));
  add_seconds(app, "--shutdown-timeout", options.shutdown_timeout,
              "After SIGTERM, running requests may take this long to finish (30)");
  add_host_names(
      app, "--allowed-hosts", options.allowed_hosts,
      "Names with a dot, beside this machine's, that a proxy on a loopback address answers to; "
      "* for all (none)");
  try {
    parse_forgivingly(app, argc, argv);
    options.port = std::to_string(port);
    options.pushes = mode == "push";
    if (options.pushes && prefill.empty())
      throw CLI::ValidationError("--transfer-mode", "push has no effect without --prefill");
    options.spelling = with_flags;
    options.prefill = urls_of("--prefill", prefill);
    options.decode = urls_of("--decode", decode);
    return options;
  } catch (const CLI::ParseError& e) {
    exit_code = app.exit(e);
    return std::nullopt;
  }
}

}  // namespace

int proxy_main(int argc, const char* const* argv) {
  std::signal(SIGPIPE, SIG_IGN);
  int exit_code = 0;
  const auto options = parse(argc, argv, exit_code);
  if (!options) return exit_code;
  try {
    proxy::Proxy proxy(*options);
    running = &proxy;
    std::signal(SIGINT, stop_running);
    std::signal(SIGTERM, stop_running);
    std::fputs(
        fmt::format("\nquire proxy: {} server(s) prefill, {} decode, at http://{}:{}\n\n",
                    options->prefill.size(), options->decode.size(), options->host, proxy.port())
            .c_str(),
        stdout);
    std::fflush(stdout);
    proxy.run();
    return 0;
  } catch (const std::exception& e) {
    log::error("proxy.failed", {{"error", failure_text(e)}});
    return 1;
  }
}

}  // namespace quire
