#pragma once
// A command with some of serve's flags, for tests of how command lines are read.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "app/args/forgiving_args.h"

namespace quire::test {

using Words = std::vector<std::string>;

// Of a command that has some of serve's flags.
struct Command {
  CLI::App app;
  int seqs = 0;
  std::string model, json, compilation, quantization;
  Words keys, origins;
  bool eager = false, caching = true, hybrid = false;

  Command() {
    app.add_option("--max-num-seqs", seqs);
    app.add_option("--max-model-len", seqs);
    app.add_option("--tensor-parallel-size", seqs);
    app.add_option("--num-speculative-tokens", seqs);
    app.add_option("MODEL", model);
    app.add_option("--api-key,--served-model-name", keys)->envname("QUIRE_TEST_KEYS");
    app.add_option("--allowed-origins", origins)->expected(1)->take_all();
    app.add_option("--quantization,-q", quantization);
    app.add_option("--speculative-config", json)->type_name("JSON");
    app.add_option("--compilation-config", compilation)->type_name("JSON");
    app.add_flag("--enforce-eager", eager);
    app.add_flag("--enable-prefix-caching", caching);
    app.add_flag("!--disable-hybrid-kv-cache-manager", hybrid);
    app.set_config("--config");
  }

  // What a command line is refused for; empty if it is not.
  std::string refusal(std::vector<const char*> given) {
    given.insert(given.begin(), "quire");
    try {
      without_effect = parse_forgivingly(app, static_cast<int>(given.size()), given.data());
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    return {};
  }
  Words without_effect;
};

struct Read {
  Words words, without_effect;
};
inline Read read(std::vector<const char*> given) {
  const Command command;
  given.insert(given.begin(), "quire");
  const ForgivingArgs args(command.app, static_cast<int>(given.size()), given.data());
  return {{args.argv.begin() + 1, args.argv.end()}, args.without_effect};
}

inline std::string refusal(const std::vector<const char*>& given) {
  return Command().refusal(given);
}

}  // namespace quire::test
