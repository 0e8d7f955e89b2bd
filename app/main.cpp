// One binary: quire COMMAND …

#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "app/args/exit_codes.h"
#include "app/args/failure_text.h"
#include "app/bench/bench_main.h"
#include "app/chat/chat_main.h"
#include "app/check/check_main.h"
#include "app/commands/engine_main.h"
#include "app/commands/grammar_main.h"
#include "app/commands/parse_main.h"
#include "app/commands/proxy_main.h"
#include "app/commands/render_main.h"
#include "app/commands/tokenize_main.h"
#include "app/doctor/doctor_main.h"
#include "app/engines/rank_processes.h"
#include "app/models/pull_main.h"
#include "app/plan/plan_main.h"
#include "app/serve/serve_main.h"
#include "base/nearest.h"
#include "engine/wire/messages.h"

namespace {

struct Subcommand {
  std::string_view name;
  std::string_view what;
  int (*run)(int argc, const char* const* argv);
  bool is_server = false;  // what it does is not what it prints
};

// Of a server: is what it prints all that is asked of it?
bool only_prints(int argc, const char* const* argv) {
  return std::any_of(argv, argv + argc, [](std::string_view word) {
    return word == "--help" || word == "-h" || word == "--print-config" || word == "--print_config";
  });
}

// What was printed has to have arrived (a disk may be full).
int checked_output(std::string_view command, int exit_code) {
  errno = 0;
  const bool arrived = std::cout.flush() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (arrived || exit_code != 0) return exit_code;
  // What failed earlier has left no reason.
  const std::string reason = errno != 0 ? std::string(": ") + std::strerror(errno) : "";
  std::fprintf(stderr, "%s: cannot write what was asked for%s\n", std::string(command).c_str(),
               reason.c_str());
  return quire::kExitNotWritten;
}

int version_main(int, const char* const*) {
  std::printf("%s\n", std::string(quire::quire_version()).c_str());
  return 0;
}

constexpr std::array kSubcommands = {
    Subcommand{"serve", "answer HTTP requests with a model, as OpenAI's API has it",
               quire::serve_main, true},
    Subcommand{"chat", "a conversation in the terminal, with a model or any OpenAI-compatible server",
               quire::chat_main},
    Subcommand{"engine", "an engine of its own process, for servers that say --engine",
               quire::engine_main, true},
    Subcommand{"proxy", "one address for servers that prefill and servers that decode",
               quire::proxy_main, true},
    Subcommand{"plan", "what would be allocated, from config.json and headers alone",
               quire::plan_main},
    Subcommand{"doctor", "what this machine has, what stands in the way, what would run how fast",
               quire::doctor_main},
    Subcommand{"pull", "fetch a model from the Hugging Face Hub", quire::pull_main},
    Subcommand{"models", "the models that were fetched", quire::models_main},
    Subcommand{"check", "compare with a recorded reference through the engine", quire::check_main},
    Subcommand{"bench", "speed of prompts and generation, beside what the machine gives at most",
               quire::bench_main},
    Subcommand{"tokenize", "text to token ids and back", quire::tokenize_main},
    Subcommand{"render", "messages to a prompt, by a chat template", quire::render_main},
    Subcommand{"grammar", "what a schema, a regular expression or a grammar lets through",
               quire::grammar_main},
    Subcommand{"parse", "a model's words to reasoning, content and tool calls", quire::parse_main},
    Subcommand{"version", "print the version", version_main},
    Subcommand{"rank", "", quire::rank_main},  // what an engine starts for itself
};

// What a command did not catch itself, such as a path that cannot be looked at.
int run(const Subcommand& command, int argc, const char* const* argv) {
  try {
    return command.run(argc, argv);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s: %s\n", argv[0], quire::failure_text(failure).c_str());
    return 1;
  }
}

int usage(std::FILE* out, int exit_code) {
  std::fputs("Quire serves language models.\n\nUsage: quire COMMAND [flags]\n\n", out);
  for (const Subcommand& command : kSubcommands) {
    if (command.what.empty()) continue;
    std::fprintf(out, "  %-10s %s\n", std::string(command.name).c_str(),
                 std::string(command.what).c_str());
  }
  std::fputs("\nquire COMMAND --help says more.\n", out);
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  // A process that another one of ours has begun is called after /proc/self/exe.
  std::array<char, 16> called{};
  if (::prctl(PR_GET_NAME, called.data()) == 0 && called.data() == std::string_view("exe"))
    ::prctl(PR_SET_NAME, "quire");
  if (argc < 2) return usage(stderr, 2);
  const std::string_view name = argv[1] == std::string_view("--version") ? "version" : argv[1];
  if (name == "--help" || name == "-h" || name == "help")
    return checked_output("quire", usage(stdout, 0));
  for (const Subcommand& command : kSubcommands) {
    if (command.name != name) continue;
    const std::string full_name = "quire " + std::string(name);
    std::vector<const char*> rest(argv + 1, argv + argc);
    rest[0] = full_name.c_str();
    const int exit_code = run(command, argc - 1, rest.data());
    if (command.is_server && !only_prints(argc - 1, rest.data())) return exit_code;
    return checked_output(full_name, exit_code);
  }
  std::array<std::string_view, kSubcommands.size()> names;
  std::ranges::transform(kSubcommands, names.begin(), &Subcommand::name);
  const auto near = quire::nearest(name, names);
  const std::string hint = near ? ". Did you mean " + std::string(*near) + "?" : "";
  std::fprintf(stderr, "quire: no command \"%s\"%s\n\n", argv[1], hint.c_str());
  return usage(stderr, 2);
}
