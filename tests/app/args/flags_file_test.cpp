#include "app/args/flags_file.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "app/args/config_text.h"
#include "app/args/forgiving_args.h"

namespace quire {
namespace {

struct Flags {
  CLI::App app;
  int seqs = 256;
  bool log = false, eager = false, caching = true;
  std::string json;
  std::vector<std::string> keys, names, without_effect;

  Flags() {
    app.set_config("--config");
    app.add_option("--max-num-seqs", seqs);
    app.add_flag("--access-log,!--no-access-log", log);
    app.add_option("--speculative-config", json)->type_name("JSON");
    app.add_flag("--eager", eager);
    app.add_flag("--enable-caching", caching);
    app.add_option("--api-key", keys);
    app.add_option("--name", names);
  }

  // What the file is refused for; empty if it is not.
  std::string read(const std::string& text) {
    const auto path = std::filesystem::temp_directory_path() /
                      ("quire_flags_" + std::to_string(::getpid()) + ".toml");
    std::ofstream(path) << text;
    const std::string name = path.string();
    const char* given[] = {"quire", "--config", name.c_str()};
    std::string why;
    try {
      without_effect = parse_forgivingly(app, 3, given);
    } catch (const CLI::ParseError& error) {
      why = error.what();
    }
    std::filesystem::remove(path);
    return why;
  }
};

std::string refusal(const std::string& text) { return Flags().read(text); }

}  // namespace

TEST_CASE("a file of flags is TOML, whatever stands in its texts", "[app][config]") {
  Flags flags;
  REQUIRE(flags.read("api-key = \"a#b\"  # a comment\n"
                     "name = [\"c\\\"d\", 'e\\f', \"\\u0041 # g\",\n  \"\"\"h\ni\"\"\"\n]\n"
                     "max-num-seqs = 2_1\naccess-log = true\n") == "");
  CHECK(flags.keys == std::vector<std::string>{"a#b"});
  CHECK(flags.names == std::vector<std::string>{"c\"d", "e\\f", "A # g", "h\ni"});
  CHECK(flags.seqs == 21);
  CHECK(flags.log);
}

TEST_CASE("what takes JSON may be a table, and an empty list is nothing", "[app][config]") {
  Flags flags;
  REQUIRE(flags.read("\xEF\xBB\xBFname = []\n[speculative-config]\nmethod = \"ngram\"\n") == "");
  CHECK(flags.json == R"({"method":"ngram"})");
  CHECK(flags.names.empty());
  CHECK(refusal("api-key = []\n") == "--config: api-key (line 1) is a list of none");
  Flags list;
  REQUIRE(list.read("speculative-config = []\n") == "");
  CHECK(list.json == "[]");
  CHECK(refusal("speculative-config = { a = inf }\n").find("no number of JSON") !=
        std::string::npos);
}

TEST_CASE("a flag stands in a file once, by whatever name", "[app][config]") {
  CHECK(refusal("disable-caching = true\nenable-caching = true\n") ==
        "--config: enable-caching (line 2) and disable-caching are one flag");
  CHECK(refusal("eager = true\nno-eager = true\n").find("are one flag") != std::string::npos);
}

TEST_CASE("what is without effect takes tables, lists and truths, and no others", "[app][config]") {
  Flags flags;
  REQUIRE(flags.read("ignore-patterns = [\"a\", \"b\"]\nlimit-mm-per-prompt = { image = 0 }\n"
                     "profiler-config = {}\ntrust-remote-code = true\nenable-lora = false\n"
                     "disable-eplb = true\n[structured-outputs-config]\nbackend = \"auto\"\n") ==
          "");
  CHECK(flags.without_effect.size() == 7);
  CHECK(refusal("trust-remote-code = \"banana\"\n") ==
        "--config: trust-remote-code (line 1) is true or false");
  CHECK(refusal("no-enable-lora = 1\n") == "--config: no-enable-lora (line 1) is true or false");
  CHECK(refusal("enable-lora = true\n").find("merge the adapter") != std::string::npos);
  CHECK(refusal("structured-outputs-config = { backend = \"auto\", x = [1, 2] }\n")
            .find(R"("{"backend":"auto","x":[1,2]}" is not offered)") != std::string::npos);
}

TEST_CASE("a file of flags may say no to what is off", "[app][config]") {
  Flags flags;
  REQUIRE(flags.read("no-trust-remote-code = true\nno_eager = true\nno-enable-lora = true\n") ==
          "");
  CHECK_FALSE(flags.eager);
  CHECK(flags.without_effect.size() == 2);
  Flags disabled;
  REQUIRE(disabled.read("disable-caching = true\n") == "");
  CHECK_FALSE(disabled.caching);
  Flags on;
  REQUIRE(on.read("no-eager = false\n") == "");
  CHECK(on.eager);
  CHECK(refusal("no-max-num-seqs = true\n").find("is not a flag; --help") != std::string::npos);
  CHECK(refusal("enable-log-requests = true\n").find("--access-log") != std::string::npos);
}

TEST_CASE("a file of flags forgives and refuses as the command line does", "[app][config]") {
  CHECK(refusal("max_num_seqs = 4\n") == "");
  CHECK(refusal("\nmax-num-seq = 4\n") ==
        "--config: \"max-num-seq\" (line 2) is not a flag. Did you mean --max-num-seqs?");
  CHECK(refusal("[serve]\nmax-num-seqs = 4\n") ==
        "--config: [serve] (line 1): the file has no sections; flags stand at its beginning");
  CHECK(refusal("access-log = \"yes\"\n") == "--config: access-log (line 1) is true or false");
  CHECK(refusal("max-num-seqs = 1979-05-27\n").find("--config: max-num-seqs (line 1): expected a") ==
        0);
  Flags idle;
  REQUIRE(idle.read("trust_remote_code = true\nswap-space = 4\n") == "");
  CHECK(idle.without_effect == std::vector<std::string>{"--swap-space", "--trust-remote-code"});
  CHECK(refusal("nnodes = 2\n") == "--nnodes: \"2\" is not offered; there is only 1");
}

TEST_CASE("what is not TOML is refused with its place, YAML with advice", "[app][config]") {
  CHECK(refusal("max-num-seqs = 4\nname = \"a\n").find("--config: line 2, column ") == 0);
  CHECK(refusal("max-num-seqs: 4\n").find("(the file is TOML, not YAML: flag = value)") !=
        std::string::npos);
  CHECK(refusal("name = \"a\"\nname = \"b\"\n").find("line 2") != std::string::npos);
}

TEST_CASE("any text survives being printed and read", "[app][config]") {
  for (const std::string text : {"x#y", "c\"d", "a\\b", "it's", "[ab]", "l1\nl2", "\x01", "é", " "}) {
    std::istringstream file("name = [" + toml_string(text) + ", \"b\"]\n");
    Flags flags;
    const auto items = FlagsFile(flags.app, flags.without_effect).from_config(file);
    REQUIRE(items.size() == 1);
    CHECK(items[0].inputs == std::vector<std::string>{text, "b"});
  }
}

}  // namespace quire
