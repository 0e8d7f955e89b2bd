#include "app/commands/tokenize_main.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <iostream>
#include <optional>
#include <string>

#include "app/args/forgiving_args.h"
#include "base/error.h"
#include "base/json.h"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {
namespace {

namespace json = boost::json;

struct Options {
  std::string model;
  bool jsonl = false;
  bool special = false;
  bool decode = false;
  bool skip_special = false;
};

[[noreturn]] void refuse(std::string detail) {
  throw Failure(ErrorCode::invalid_argument, std::move(detail));
}

bool flag(const Json& question, std::string_view key) {
  return question.boolean({key}).value_or(false);
}

std::vector<TokenId> ids_of(const Json& question, std::string_view key) {
  std::vector<TokenId> ids;
  const auto list = question.find({key});
  if (!list) return ids;
  for (const Json item : list->items()) {
    const std::int64_t id = item.as_integer({INT64_MIN, INT64_MAX});
    const bool representable = id >= 0 && id <= INT32_MAX;
    ids.push_back(representable ? static_cast<TokenId>(id) : -1);  // no vocabulary has it
  }
  return ids;
}

json::object stream(const Tokenizer& tokenizer, const Json& question) {
  const auto prompt = ids_of(question, "prompt_ids");
  Detokenizer detokenizer(tokenizer, flag(question, "skip_special"), prompt);
  json::array pieces;
  for (const TokenId id : ids_of(question, "ids")) pieces.emplace_back(detokenizer.push(id));
  pieces.emplace_back(detokenizer.finish());
  return {{"pieces", std::move(pieces)}};
}

json::object answer(const Tokenizer& tokenizer, const Json& question) {
  if (const auto text = question.find({"text"})) {
    json::array ids;
    for (const TokenId id : tokenizer.encode(text->as_string(), flag(question, "special"))) {
      ids.push_back(id);
    }
    return {{"ids", std::move(ids)}};
  }
  if (!question.has({"ids"})) refuse("expected \"text\" or \"ids\"");
  if (flag(question, "stream")) return stream(tokenizer, question);
  return {{"text", tokenizer.decode(ids_of(question, "ids"), flag(question, "skip_special"))}};
}

int run_jsonl(const Tokenizer& tokenizer) {
  int number = 0;
  for (std::string line; std::getline(std::cin, line);) {
    json::object reply;
    try {
      const JsonDocument question(std::move(line), fmt::format("line {}", ++number));
      reply = answer(tokenizer, question.object());
    } catch (const Failure& failure) {
      reply = {{"error", failure.what()}};
    }
    std::cout << json::serialize(reply) << '\n' << std::flush;
  }
  return 0;
}

// Each line by itself: the ids, and the tokens as the vocabulary spells them.
int run_encode(const Tokenizer& tokenizer, bool special) {
  for (std::string line; std::getline(std::cin, line);) {
    const auto ids = tokenizer.encode(line, special);
    for (const TokenId id : ids) {
      std::cout << fmt::format("{:>8}  {}\n", id, tokenizer.id_to_token(id));
    }
    std::cout << fmt::format("{} tokens\n", ids.size());
  }
  return 0;
}

int run_decode(const Tokenizer& tokenizer, bool skip_special) {
  std::vector<TokenId> ids;
  for (std::string word; std::cin >> word;) {
    try {
      ids.push_back(std::stoi(word));
    } catch (const std::exception&) {
      refuse(fmt::format("\"{}\" is not a token id", word));
    }
  }
  std::cout << tokenizer.decode(ids, skip_special) << '\n';
  return 0;
}

}  // namespace

int tokenize_main(int argc, const char* const* argv) {
  Options options;
  CLI::App app("Text to token ids and back, with the tokenizer of a model. Reads standard input.",
               argv[0]);
  app.add_option("--model", options.model, "Folder with tokenizer.json, or a .gguf file")->required();
  app.add_flag("--jsonl", options.jsonl, "One JSON object per line, each answered by one");
  app.add_flag("--special", options.special, "Encode with the model's special tokens around it");
  app.add_flag("--decode", options.decode, "Read ids, separated by spaces, and print their text");
  app.add_flag("--skip-special", options.skip_special, "With --decode: leave special tokens out");
  app.footer(
      "With --jsonl, questions and answers are\n"
      "  {\"text\": \"…\", \"special\": true}                      {\"ids\": […]}\n"
      "  {\"ids\": […], \"skip_special\": true}                  {\"text\": \"…\"}\n"
      "  {\"ids\": […], \"stream\": true, \"prompt_ids\": […]}     {\"pieces\": [\"…\", …]}\n"
      "and {\"error\": \"…\"} for a question that is wrong. Flags left out are false.\n\n"
      "Exit codes: 0 answered, 1 the tokenizer cannot be loaded or the input is wrong, and those\n"
      "above 100 for wrong flags.");
  try {
    parse_forgivingly(app, argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  try {
    const auto tokenizer = Tokenizer::load(options.model);
    if (options.jsonl) return run_jsonl(*tokenizer);
    if (options.decode) return run_decode(*tokenizer, options.skip_special);
    return run_encode(*tokenizer, options.special);
  } catch (const Failure& failure) {
    std::cerr << "quire tokenize: " << failure.what() << '\n';
    return 1;
  }
}

}  // namespace quire
