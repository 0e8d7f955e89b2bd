#include "app/forgiving_args.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

namespace quire {
namespace {

std::vector<std::string> words(const ForgivingArgs& args) {
  return {args.argv.begin(), args.argv.end()};
}

std::string refusal(std::vector<const char*> given) {
  CLI::App app;
  int seqs = 0;
  std::string model;
  app.add_option("--max-num-seqs", seqs);
  app.add_option("MODEL", model);
  app.set_config("--config");
  given.insert(given.begin(), "quire");
  try {
    parse_forgivingly(app, static_cast<int>(given.size()), given.data());
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("underscores are dashes, in the flag and not in its value", "[app][args]") {
  const char* given[] = {"quire_x", "a_b", "--max_model_len=8_k", "--served_model_name", "my_model",
                         "-q"};
  const ForgivingArgs args(6, given);
  CHECK(words(args) == std::vector<std::string>{"quire_x", "a_b", "--max-model-len=8_k",
                                                "--served-model-name", "my_model", "-q"});
  CHECK(args.without_effect.empty());
}

TEST_CASE("what there is nothing to switch is taken out and told", "[app][args]") {
  const char* given[] = {"quire", "--trust_remote_code", "M", "--disable-log-requests"};
  const ForgivingArgs args(4, given);
  CHECK(words(args) == std::vector<std::string>{"quire", "M"});
  CHECK(args.without_effect ==
        std::vector<std::string>{"--trust-remote-code", "--disable-log-requests"});
}

TEST_CASE("an unknown flag is named, with the one that was meant", "[app][args]") {
  CHECK(refusal({"M", "--max-num-seqs", "4"}).empty());
  CHECK(refusal({"M", "--max-num-seq", "4"}) ==
        "--max-num-seq: no such flag. Did you mean --max-num-seqs?");
  CHECK(refusal({"M", "--max-num-seq=4"}) ==
        "--max-num-seq: no such flag. Did you mean --max-num-seqs?");
  CHECK(refusal({"M", "--enable-lora"}) == "--enable-lora: no such flag; --help lists them");
  CHECK(refusal({"M", "N"}) == "\"N\": one word too many");
}

TEST_CASE("a file of flags forgives and refuses as the command line does", "[app][args]") {
  const auto refusal_of = [](const std::string& text) {
    const auto file = std::filesystem::temp_directory_path() /
                      ("quire_flags_" + std::to_string(::getpid()) + ".toml");
    std::ofstream(file) << text;
    const std::string path = file.string();
    const std::string why = refusal({"--config", path.c_str()});
    std::filesystem::remove(file);
    return why;
  };
  CHECK(refusal_of("max_num_seqs = 4\n").empty());
  CHECK(refusal_of("max-num-seqs = 4\n").empty());
  CHECK(refusal_of("max-num-seq = 4\n") ==
        "--config: \"max-num-seq\" is not a flag. Did you mean --max-num-seqs?");
  CHECK(refusal_of("[serve]\nmax-num-seqs = 4\n") ==
        "--config: [serve]: the file has no sections; flags stand at its beginning");
}

}  // namespace quire
