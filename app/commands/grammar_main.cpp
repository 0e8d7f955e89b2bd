#include "app/commands/grammar_main.h"

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <iostream>
#include <optional>
#include <string>

#include "app/args/forgiving_args.h"
#include "base/error.h"
#include "engine/structured/compiled_grammar.h"
#include "openapi/json_spans.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {
namespace {

namespace json = boost::json;
using structured::CompiledGrammar;
using structured::GrammarContext;
using structured::GrammarErrorKind;
using structured::GrammarFailure;
using structured::GrammarMatcher;
using structured::GrammarSpec;

[[noreturn]] void refuse(const std::string& what) {
  throw GrammarFailure(GrammarErrorKind::syntax, what);
}

const json::value& member(const json::object& object, std::string_view key) {
  const auto* value = object.if_contains(key);
  if (value == nullptr) refuse("\"" + std::string(key) + "\" is missing");
  return *value;
}

// `line` is the question as it came, with its numbers to the letter.
GrammarSpec spec_of(const json::object& question, std::string_view line) {
  const json::value& kind = member(question, "kind");
  const auto known =
      kind.is_string() ? structured::grammar_kind(kind.get_string()) : std::nullopt;
  if (!known) refuse("\"kind\" must be json_schema, json_object, regex, choice, ebnf or structural_tag");
  GrammarSpec spec;
  spec.kind = *known;
  const auto* options = question.if_contains("options");
  if (options != nullptr && options->is_object()) {
    const auto* space = options->get_object().if_contains("whitespace");
    spec.any_whitespace = space == nullptr || !space->is_bool() || space->get_bool();
  }
  if (spec.kind == GrammarSpec::Kind::json_object) return spec;
  const json::value& parts = member(question, "spec");
  if (!parts.is_object()) refuse("\"spec\" must be an object");
  const auto text = [&](std::string_view key) {
    const json::value& value = member(parts.get_object(), key);
    if (!value.is_string()) refuse("\"" + std::string(key) + "\" must be a string");
    return std::string(value.get_string());
  };
  switch (spec.kind) {
    case GrammarSpec::Kind::regex: spec.source = text("regex"); break;
    case GrammarSpec::Kind::ebnf: spec.source = text("grammar"); break;
    case GrammarSpec::Kind::choice:
      member(parts.get_object(), "choice");
      spec.source = openapi::value_at(line, "/spec/choice");
      break;
    case GrammarSpec::Kind::structural_tag:
      member(parts.get_object(), "structural_tag");
      spec.source = openapi::value_at(line, "/spec/structural_tag");
      break;
    default:
      member(parts.get_object(), "schema");
      spec.source = openapi::value_at(line, "/spec/schema");
  }
  return spec;
}

// Follows the text byte by byte: up to where it can still become one that is valid.
json::object judge(const std::shared_ptr<CompiledGrammar>& grammar, std::string_view text) {
  GrammarMatcher matcher(grammar);
  const bool prefix = matcher.accept_bytes(text);
  return {{"valid", prefix && matcher.complete()}, {"prefix_ok", prefix}};
}

json::object mask(GrammarMatcher& matcher, std::size_t words) {
  std::vector<std::uint32_t> bits(words);
  matcher.fill_mask(bits);
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const std::uint32_t word : bits) {
    for (int i = 0; i < 4; ++i) {
      const unsigned byte = word >> 8 * i & 0xff;
      hex += kDigits[byte >> 4];
      hex += kDigits[byte & 15];
    }
  }
  return {{"bits", hex}};
}

json::array masks(const std::shared_ptr<CompiledGrammar>& grammar, const json::object& question) {
  const json::value &ids = member(question, "ids"), &at = member(question, "at");
  if (!ids.is_array() || !at.is_array()) refuse("\"ids\" and \"at\" must be lists of numbers");
  json::array result;
  GrammarMatcher matcher(grammar);
  std::size_t taken = 0;
  for (const json::value& place : at.get_array()) {
    const auto wanted = place.to_number<std::size_t>();
    for (; taken < wanted && taken < ids.get_array().size(); ++taken) {
      if (!matcher.accept(ids.get_array()[taken].to_number<TokenId>())) {
        refuse("the token at " + std::to_string(taken) + " is not allowed");
      }
    }
    result.push_back(mask(matcher, grammar->vocabulary()->words()));
  }
  return result;
}

json::object answer(const GrammarContext& context, const json::value& question, std::string_view line) {
  if (!question.is_object()) refuse("expected a JSON object");
  const json::object& object = question.get_object();
  const auto grammar = CompiledGrammar::compile(spec_of(object, line), context);
  if (object.contains("ids")) {
    if (context.vocabulary == nullptr) refuse("masks need --model");
    return {{"masks", masks(grammar, object)}};
  }
  json::array results;
  const json::value& texts = member(object, "texts");
  if (!texts.is_array()) refuse("\"texts\" must be a list of strings");
  for (const json::value& text : texts.get_array()) {
    if (!text.is_string()) refuse("\"texts\" must be a list of strings");
    results.push_back(judge(grammar, text.get_string()));
  }
  return {{"results", std::move(results)}};
}

json::object answer_line(const GrammarContext& context, const std::string& line) {
  try {
    json::parse_options options;
    options.max_depth = 1'000;
    boost::system::error_code error;
    const json::value question = json::parse(line, error, {}, options);
    if (error) refuse("not JSON: " + error.message());
    return answer(context, question, line);
  } catch (const GrammarFailure& failure) {
    return {{"error", failure.what()},
            {"error_kind", structured::to_string(failure.kind())},
            {"pointer", failure.pointer()}};
  } catch (const boost::system::system_error& error) {
    return {{"error", error.what()}, {"error_kind", "syntax"}, {"pointer", ""}};
  }
}

// The end token of a model folder: its tokenizer's "eos_token".
GrammarContext context_of(const std::string& model) {
  GrammarContext context;
  if (model.empty()) return context;
  const auto tokenizer = Tokenizer::load(model);
  std::vector<TokenId> ends;
  const auto named = tokenizer->special_strings().find("eos_token");
  if (named != tokenizer->special_strings().end()) {
    if (const auto id = tokenizer->token_to_id(named->second)) ends.push_back(*id);
  }
  context.vocabulary = structured::Vocabulary::of(*tokenizer, ends);
  return context;
}

}  // namespace

int grammar_main(int argc, const char* const* argv) {
  std::string model;
  bool jsonl = false;
  CLI::App app("What a schema, a regular expression or a grammar lets through.", argv[0]);
  app.add_flag("--jsonl", jsonl, "One JSON object per line on standard input, each answered by one")
      ->required();
  app.add_option("--model", model, "Folder with tokenizer.json or a .gguf file, for masks");
  app.footer(
      "Questions and answers are\n"
      "  {\"kind\": \"json_schema\", \"spec\": {\"schema\": …}, \"texts\": [\"…\", …]}\n"
      "      {\"results\": [{\"valid\": true, \"prefix_ok\": true}, …]}\n"
      "  {\"kind\": …, \"spec\": …, \"ids\": [1, 2, …], \"at\": [0, 1, …]}\n"
      "      {\"masks\": [{\"bits\": \"…\"}, …]}: tokens that may follow, bit i of byte i/8 is token i\n"
      "and {\"error\": \"…\", \"error_kind\": \"…\", \"pointer\": \"…\"} for what is refused. Kinds are\n"
      "json_schema, json_object, regex, choice, ebnf (\"grammar\") and structural_tag; with\n"
      "\"options\": {\"whitespace\": false} JSON is written without white space.");
  try {
    parse_forgivingly(app, argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  try {
    const GrammarContext context = context_of(model);
    for (std::string line; std::getline(std::cin, line);) {
      std::cout << json::serialize(answer_line(context, line)) << '\n' << std::flush;
    }
    return 0;
  } catch (const Failure& failure) {
    std::cerr << "quire grammar: " << failure.what() << '\n';
    return 1;
  }
}

}  // namespace quire
