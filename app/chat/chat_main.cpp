#include "app/chat/chat_main.h"

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdlib>
#include <optional>

#include "app/args/failure_text.h"
#include "app/args/forgiving_args.h"
#include "app/chat/server.h"
#include "app/chat/session.h"
#include "app/models/pull_main.h"
#include "base/error.h"

namespace quire {

namespace {

struct Options {
  std::string model;
  std::string url;
  std::string model_name;
  std::string api_key;
  std::string system;
  std::string prompt;
  std::string load;
  std::vector<std::string> settings;
  bool hide_thinking = false;
  std::vector<std::string> serve_flags;  // behind --
};

void add_flags(CLI::App& app, Options& options) {
  auto* model = app.add_option("MODEL", options.model,
                               "A model's folder, or org/name: it is served for this conversation");
  app.add_option("--url", options.url,
                 "Talk to this server instead: http://host:port, https://host/v1 or unix:/path")
      ->excludes(model);
  app.add_option("--model", options.model_name, "The server's name for the model; default: its first");
  app.add_option("--api-key", options.api_key,
                 "Default: QUIRE_API_KEY or OPENAI_API_KEY of the environment, which ps does not show");
  app.add_option("--system", options.system, "System prompt");
  app.add_option("-p,--prompt", options.prompt, "Ask this, print the answer, end");
  app.add_option("--load", options.load, "Go on with a conversation that /save wrote");
  app.add_option("--set", options.settings, "NAME=VALUE of the requests, such as temperature=0.2");
  app.add_flag("--hide-thinking", options.hide_thinking, "Show the answers alone");
  app.footer(
      "What follows -- goes to the server that is started: quire chat MODEL -- --max-model-len 4k");
}

std::string key_of(const Options& options) {
  if (!options.api_key.empty()) return options.api_key;
  for (const char* name : {"QUIRE_API_KEY", "OPENAI_API_KEY"}) {
    if (const char* const key = std::getenv(name); key != nullptr && *key != '\0') return key;
  }
  return {};
}

// The API lies under /v1 where the address has no path of its own.
net::Url base_of(net::Url url) {
  if (url.target.empty() || url.target == "/") url.target = "/v1";
  return url;
}

void prepare(ChatSession& session, const Options& options) {
  Conversation& conversation = session.conversation();
  if (!options.load.empty()) conversation.load(options.load);
  if (!options.system.empty()) conversation.system = options.system;
  for (const std::string& setting : options.settings) {
    const std::size_t equal = setting.find('=');
    if (equal == 0 || equal == setting.npos) {
      throw Failure(ErrorCode::invalid_argument, "--set " + setting + ": give NAME=VALUE");
    }
    conversation.set(setting.substr(0, equal), std::string_view(setting).substr(equal + 1));
  }
  session.show_reasoning = !options.hide_thinking;
  conversation.model = options.model_name;
  if (!conversation.model.empty()) return;
  const auto names = session.models();
  if (names.empty()) throw Failure(ErrorCode::not_found, "the server has no model");
  conversation.model = names.front();
}

int converse(ChatSession& session, ChatTerminal& terminal) {
  terminal.note(session.conversation().model + " · /help lists the commands, Ctrl-D ends");
  bool all_answered = true;
  while (auto message = terminal.read_message()) {
    if (message->find_first_not_of(" \t\n") == message->npos) continue;
    if (message->front() == '/') {
      if (!session.command(*message)) break;
    } else {
      all_answered &= session.ask(*message);
    }
  }
  return all_answered || terminal.is_interactive() ? 0 : 1;
}

int chat(const Options& options) {
  ChatTerminal terminal;
  std::optional<ChatServer> server;
  std::string shown;
  if (options.url.empty()) {
    terminal.note("starting a server for " + options.model);
    server.emplace(
        model_folder(options.model, true), options.serve_flags,
        [&](const std::string& progress) {
          if (progress != shown) terminal.note(progress);
          shown = progress;
        },
        [] { return ChatTerminal::is_interrupted(); });
  }
  const net::Url url = server ? server->url() : net::Url::parse(options.url);
  ChatSession session({base_of(url), server ? std::string() : key_of(options)}, terminal);
  prepare(session, options);
  if (!options.prompt.empty()) return session.ask(options.prompt) ? 0 : 1;
  return converse(session, terminal);
}

// Apart from what is ours: CLI11 would take what follows -- for positionals.
std::vector<const char*> before_dashes(int argc, const char* const* argv, Options& options) {
  std::vector<const char*> ours(argv, argv + argc);
  const auto dashes = std::ranges::find(ours, std::string_view("--"));
  if (dashes != ours.end()) options.serve_flags.assign(dashes + 1, ours.end());
  ours.erase(dashes, ours.end());
  return ours;
}

}  // namespace

int chat_main(int argc, const char* const* argv) {
  std::signal(SIGPIPE, SIG_IGN);
  Options options;
  CLI::App app("A conversation in the terminal.", "quire chat");
  add_flags(app, options);
  const auto ours = before_dashes(argc, argv, options);
  try {
    parse_forgivingly(app, static_cast<int>(ours.size()), ours.data());
    if (options.model.empty() == options.url.empty()) {
      throw CLI::ValidationError("MODEL", "or --url is needed; quire chat models/quire-tiny");
    }
    if (options.model.empty() && !options.serve_flags.empty()) {
      throw CLI::ValidationError("--", "what follows it goes to a server that is started; --url has one");
    }
  } catch (const CLI::ParseError& e) {
    return app.exit(e);
  }
  try {
    return chat(options);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "quire chat: %s\n", failure_text(e).c_str());
    return 1;
  }
}

}  // namespace quire
