#include "app/args/config_text.h"

#include <CLI/CLI.hpp>
#include <catch2/catch.hpp>
#include <sstream>

#include "app/args/flags_file.h"

namespace quire {
namespace {

struct Flags {
  CLI::App app;
  int seqs = 256;
  bool log = false, events = true;
  std::string model, more, name;
  std::vector<std::string> keys, origins, without_effect;

  Flags() {
    app.set_config("--config");
    app.config_formatter(std::make_shared<FlagsFile>(app, without_effect));
    app.add_option("MODEL,--model", model, "Folder")->group("Model");
    app.add_option("MORE", more);
    app.add_option("--max-num-seqs", seqs, "Sequences at a time (256)")->group("Scheduler");
    app.add_flag("--access-log,!--no-access-log", log, "Log each request")->group("Process");
    app.add_flag("!--byte-hashes", events, "Hashes as bytes")->group("Process");
    app.add_option("--name", name, std::string(60, 'a') + " " + std::string(60, 'b'))->group("Process");
    app.add_option("--api-key", keys, "Key")->group("Process");
    app.add_option("--origins", origins, "Origins")->expected(1)->take_all()->group("Process");
  }

  void parse(std::vector<std::string> given) {
    std::reverse(given.begin(), given.end());
    app.parse(std::move(given));
  }
};

}  // namespace

TEST_CASE("without flags every line is a comment, with what it does", "[app][config]") {
  Flags flags;
  flags.parse({});
  CHECK(config_text(flags.app).starts_with("## Model\n\n# Folder\n#model = \n\n## Scheduler\n\n# Sequences at a time (256)\n"
                                           "#max-num-seqs = \n"));
  std::istringstream lines(config_text(flags.app));
  for (std::string line; std::getline(lines, line);) CHECK((line.empty() || line.starts_with('#')));
}

TEST_CASE("a printed file read back says the same", "[app][config]") {
  Flags given;
  given.parse({"M", "--max-num-seqs", "7", "--access-log", "--byte-hashes", "--name",
               R"(a "b\c" d)", "--origins", "https://a", "--origins", "https://b"});
  const std::string text = config_text(given.app);
  Flags read;
  std::istringstream file(text);
  read.app.parse_from_stream(file);
  CHECK(read.model == "M");
  CHECK(read.seqs == 7);
  CHECK(read.log);
  CHECK_FALSE(read.events);
  CHECK(read.name == given.name);
  CHECK(read.origins == given.origins);
  CHECK(config_text(read.app) == text);
}

TEST_CASE("keys do not stand in a printed file", "[app][config]") {
  Flags flags;
  flags.parse({"--api-key", "hunter2"});
  CHECK(config_text(flags.app).find("hunter2") == std::string::npos);
}

}  // namespace quire
