#include "app/commands/parse_main.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "app/args/forgiving_args.h"
#include "base/error.h"
#include "base/file.h"
#include "jinja/values/dict.h"
#include "jinja/values/json.h"
#include "jinja/values/value.h"
#include "text/output/output_parser.h"

namespace quire {

namespace {

using jinja::Dict;
using jinja::List;
using jinja::Value;

struct Options {
  bool jsonl = false;
  std::string dialect = "hermes";
  std::string reasoning = "none";
  std::string tools_file;
};

constexpr std::size_t kMaxInputBytes = 256u << 20;  // of each file, and of standard input

[[noreturn]] void refuse(std::string detail) {
  throw Failure(ErrorCode::invalid_argument, std::move(detail));
}

std::string known_names() {
  std::string names = "none";
  for (const Dialect& dialect : dialects()) names += ", " + dialect.name;
  return names;
}

const Dialect* dialect_named(const std::string& name) {
  if (name == "none") return nullptr;
  if (const Dialect* found = find_dialect(name)) return found;
  refuse("no dialect \"" + name + "\"; known are " + known_names());
}

// `think_open` is `think` in a text that begins inside.
void set_reasoning(OutputFormat& format, const std::string& name) {
  if (name == "none") return;
  constexpr std::string_view kOpen = "_open";
  format.starts_inside = name.ends_with(kOpen);
  const std::string bare = format.starts_inside ? name.substr(0, name.size() - kOpen.size()) : name;
  format.reasoning = find_reasoning_format(bare);
  if (format.reasoning == nullptr) refuse("no way of reasoning \"" + name + "\"");
}

const Value& member(const Dict& question, std::string_view name) {
  static const Value kNone;
  const Value* found = question.find(name);
  return found == nullptr ? kNone : *found;
}

// Questions in a row mostly have the same tools.
class KnownTools {
 public:
  std::shared_ptr<const ToolTypes> of(const Value& tools) {
    if (tools.is_none()) return nullptr;
    std::string json = jinja::dump_json(tools, {});
    if (json != json_ || !types_) types_ = std::make_shared<ToolTypes>(json);
    json_ = std::move(json);
    return types_;
  }

 private:
  std::string json_;
  std::shared_ptr<const ToolTypes> types_;
};

Value value_of(const ToolCallDelta& call) {
  Dict entry;
  entry.set("index", Value(call.index));
  if (call.id) entry.set("id", Value(*call.id));
  if (call.name) entry.set("name", Value(*call.name));
  entry.set("arguments", Value(call.arguments));
  return Value(std::move(entry));
}

Value value_of(const OutputDelta& delta) {
  if (delta.empty()) return Value();
  Dict entry;
  if (!delta.reasoning.empty()) entry.set("reasoning", Value(delta.reasoning));
  if (!delta.content.empty()) entry.set("content", Value(delta.content));
  List calls;
  for (const ToolCallDelta& call : delta.tool_calls) calls.push_back(value_of(call));
  if (!calls.empty()) entry.set("tool_calls", Value(std::move(calls)));
  return Value(std::move(entry));
}

// As a client adds up what it is sent.
class Sum {
 public:
  void add(const OutputDelta& delta) {
    reasoning_ += delta.reasoning;
    content_ += delta.content;
    for (const ToolCallDelta& call : delta.tool_calls) {
      if (calls_.size() <= std::size_t(call.index))
        calls_.push_back(call);
      else
        calls_[std::size_t(call.index)].arguments += call.arguments;
    }
  }
  Value value() const {
    Dict entry;
    entry.set("reasoning", reasoning_.empty() ? Value() : Value(reasoning_));
    entry.set("content", content_.empty() ? Value() : Value(content_));
    List calls;
    for (const ToolCallDelta& call : calls_) {
      Dict one;
      one.set("id", Value(call.id.value_or("")));
      one.set("name", Value(call.name.value_or("")));
      one.set("arguments", Value(call.arguments));
      calls.push_back(Value(std::move(one)));
    }
    entry.set("tool_calls", Value(std::move(calls)));
    return Value(std::move(entry));
  }

 private:
  std::string reasoning_, content_;
  std::vector<ToolCallDelta> calls_;
};

std::string piece_text(const Value& piece) {
  if (piece.is_string()) return piece.string();
  if (piece.is(Value::Kind::dict)) {
    const Value& special = member(piece.dict(), "special");
    if (special.is_string()) return special.string();
  }
  refuse("a piece must be a string or {\"special\": string}");
}

Dict answer(const Dict& question, KnownTools& known) {
  const Value& dialect = member(question, "dialect");
  const Value& reasoning = member(question, "reasoning");
  const Value& pieces = member(question, "pieces");
  if (!pieces.is(Value::Kind::list)) refuse("\"pieces\" must be a list");
  OutputFormat format;
  if (dialect.is_string()) format.dialect = dialect_named(dialect.string());
  if (reasoning.is_string()) set_reasoning(format, reasoning.string());
  format.types = known.of(member(question, "tools"));

  OutputParser parser(std::move(format));
  Sum sum;
  List deltas;
  const auto add = [&](const OutputDelta& delta) {
    deltas.push_back(value_of(delta));
    sum.add(delta);
  };
  for (const Value& piece : pieces.list()) add(parser.push(piece_text(piece)));
  add(parser.finish());
  Dict reply;
  reply.set("deltas", Value(std::move(deltas)));
  reply.set("final", sum.value());
  return reply;
}

int run_jsonl() {
  KnownTools known;
  for (std::string line; std::getline(std::cin, line);) {
    Dict reply;
    try {
      const Value question = jinja::parse_json(line);
      if (!question.is(Value::Kind::dict)) refuse("expected a JSON object");
      reply = answer(question.dict(), known);
    } catch (const Failure& failure) {
      reply.set("error", Value(failure.what()));
    }
    std::cout << jinja::dump_json(Value(std::move(reply)), {}) << '\n' << std::flush;
  }
  return 0;
}

// The whole text at once.
int run_once(const Options& options) {
  OutputFormat format;
  format.dialect = dialect_named(options.dialect);
  set_reasoning(format, options.reasoning);
  if (!options.tools_file.empty()) {
    format.types =
        std::make_shared<ToolTypes>(read_text_file(options.tools_file, kMaxInputBytes));
  }
  OutputParser parser(std::move(format));
  Sum sum;
  sum.add(parser.push(read_text(std::cin, kMaxInputBytes, "standard input")));
  sum.add(parser.finish());
  std::cout << jinja::dump_json(sum.value(), {}) << '\n';
  return 0;
}

void add_options(CLI::App& app, Options& options) {
  app.add_flag("--jsonl", options.jsonl, "One JSON object per line, each answered by one");
  app.add_option("--dialect", options.dialect, "How the model writes calls: " + known_names());
  app.add_option("--reasoning", options.reasoning,
                 "How it thinks: none, think, think_open (the text begins inside), seed, mistral, "
                 "granite, cohere, harmony");
  app.add_option("--tools", options.tools_file,
                 "JSON list of tools, whose schemas say what bare values are");
  app.footer(
      "Reads standard input. With --jsonl, a question is\n"
      "  {\"dialect\": \"hermes\", \"reasoning\": null or \"think\", \"tools\": […],\n"
      "   \"pieces\": [\"text\", {\"special\": \"<|call|>\"}, …]}\n"
      "and its answer {\"deltas\": [one for each piece and one for the end], \"final\": {…}}.\n\n"
      "Example: echo '<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>' | quire "
      "parse\n\n"
      "Exit codes: 0 answered, 1 the input is wrong, above 100 for wrong flags.");
}

}  // namespace

int parse_main(int argc, const char* const* argv) {
  Options options;
  CLI::App app("What a model wrote to reasoning, content and tool calls.", argv[0]);
  add_options(app, options);
  try {
    parse_forgivingly(app, argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  try {
    return options.jsonl ? run_jsonl() : run_once(options);
  } catch (const Failure& failure) {
    std::cerr << "quire parse: " << failure.what() << '\n';
    return 1;
  }
}

}  // namespace quire
