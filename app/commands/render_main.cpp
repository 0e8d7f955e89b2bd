#include "app/commands/render_main.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <map>
#include <optional>
#include <string>

#include "app/args/forgiving_args.h"
#include "base/error.h"
#include "base/file.h"
#include "jinja/values/json.h"
#include "openapi/dto_json.h"
#include "server/chat_prompt_text.h"

namespace quire {
namespace {

using jinja::Dict;
using jinja::Value;

struct Options {
  std::string model;
  std::string template_file;
  std::string messages_file;
  std::string tools_file;
  std::string kwargs;
  std::string content_format = "auto";
  bool jsonl = false;
  bool no_generation_prompt = false;
  bool continue_final = false;
};

constexpr std::size_t kMaxInputBytes = 256u << 20;  // of each file, and of standard input

[[noreturn]] void refuse(std::string detail) {
  throw Failure(ErrorCode::invalid_argument, std::move(detail));
}

std::string read_all(const std::string& path) {
  if (path == "-") return read_text(std::cin, kMaxInputBytes, "standard input");
  return read_text_file(path, kMaxInputBytes);
}

Value field(const Dict& question, std::string_view name) {
  const Value* found = question.find(name);
  return found == nullptr ? Value() : *found;
}

bool flag(const Dict& question, std::string_view name) {
  const Value value = field(question, name);
  if (value.is_none()) return false;
  if (!value.is(Value::Kind::boolean))
    refuse("\"" + std::string(name) + "\" must be true or false");
  return value.boolean();
}

Dict names(const Dict& question, std::string_view name) {
  const Value value = field(question, name);
  if (value.is_none()) return {};
  if (!value.is(Value::Kind::dict)) refuse("\"" + std::string(name) + "\" must be an object");
  return value.dict();
}

// What strftime_now reads in the bare form, whose answers shall be the same every day, unless "now"
// says otherwise.
constexpr const char* kBareNow = "2025-03-08T09:05:07";

std::tm parse_time(const std::string& text) {
  std::tm time{};
  const char* end = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  if (end == nullptr || *end != '\0') refuse(std::string("\"now\" must look like ") + kBareNow);
  return time;
}

std::optional<std::tm> time_of(const Dict& question) {
  const Value value = field(question, "now");
  if (value.is_none()) return {};
  if (!value.is_string()) refuse("\"now\" must be a string");
  return parse_time(value.string());
}

// Templates of earlier lines, since a program sends the same ones again and again.
class Templates {
 public:
  const ChatTemplate& of(const Dict& question) {
    const Value source = field(question, "template");
    const Value model = field(question, "model");
    if (!source.is_string() && !model.is_string()) refuse("expected \"template\" or \"model\"");
    const std::string key = source.is_string() ? "t" + source.string() : "m" + model.string();
    if (const auto known = known_.find(key); known != known_.end()) return known->second;
    if (known_.size() >= kMaxKnown) known_.clear();
    return known_
        .emplace(key, source.is_string() ? ChatTemplate::parse(source.string())
                                         : ChatTemplate::load(model.string()))
        .first->second;
  }

 private:
  static constexpr std::size_t kMaxKnown = 64;
  std::map<std::string, ChatTemplate> known_;
};

ChatTemplateInput input_of(const Dict& question) {
  ChatTemplateInput input;
  input.messages = field(question, "messages");
  input.tools = field(question, "tools");
  input.documents = field(question, "documents");
  input.add_generation_prompt = flag(question, "add_generation_prompt");
  input.continue_final_message = flag(question, "continue_final_message");
  input.kwargs = names(question, "kwargs");
  input.now = time_of(question);
  return input;
}

Dict error_reply(std::string_view message, std::string_view kind) {
  Dict reply;
  reply.set("error", Value(message));
  reply.set("error_kind", Value(kind));
  return reply;
}

Dict answer(Templates& templates, const std::string& line) {
  const Value question = jinja::parse_json(line);
  if (!question.is(Value::Kind::dict)) refuse("expected a JSON object");
  const ChatTemplate& chat_template = templates.of(question.dict());
  const bool bare = question.dict().find("context") != nullptr;
  const RenderResult result =
      bare ? chat_template.render_context(names(question.dict(), "context"),
                                          time_of(question.dict()).value_or(parse_time(kBareNow)))
           : chat_template.render(input_of(question.dict()));
  if (result.error) return error_reply(result.error->message, name_of(result.error->kind));
  Dict reply;
  reply.set("text", Value(result.text));
  return reply;
}

int run_jsonl() {
  Templates templates;
  jinja::JsonStyle style;
  style.ensure_ascii = true;
  for (std::string line; std::getline(std::cin, line);) {
    Dict reply;
    try {
      reply = answer(templates, line);
    } catch (const TemplateFailure& failure) {
      reply = error_reply(failure.cause().message, name_of(failure.cause().kind));
    } catch (const Failure& failure) {
      reply = error_reply(failure.what(), "request");
    }
    std::cout << jinja::dump_json(Value(std::move(reply)), style) << '\n' << std::flush;
  }
  return 0;
}

// As a client sends it: messages alone are a request, too.
std::string request_of(const Options& options) {
  std::string body = read_all(options.messages_file);
  if (const auto begin = body.find_first_not_of(" \t\r\n"); begin != body.npos && body[begin] == '[')
    body = "{\"messages\": " + body + "}";
  const bool is_whole = options.tools_file.empty() && options.kwargs.empty() &&
                        !options.no_generation_prompt && !options.continue_final;
  if (is_whole) return body;
  const Value given = jinja::parse_json(body);
  if (!given.is(Value::Kind::dict)) refuse("expected a list of messages, or a chat request");
  Dict request = given.dict();
  if (!options.tools_file.empty())
    request.set("tools", jinja::parse_json(read_all(options.tools_file)));
  if (!options.kwargs.empty()) {
    const Value kwargs = jinja::parse_json(options.kwargs);
    if (!kwargs.is(Value::Kind::dict)) refuse("--kwargs must be a JSON object");
    Dict all = names(request, "chat_template_kwargs");
    for (const auto& [key, value] : kwargs.dict()) all.set(key, value);
    request.set("chat_template_kwargs", Value(std::move(all)));
  }
  if (options.no_generation_prompt || options.continue_final)
    request.set("add_generation_prompt", Value(false));
  if (options.continue_final) request.set("continue_final_message", Value(true));
  return jinja::dump_json(Value(std::move(request)), {});
}

// The server's way from a request to a prompt, with its defaults.
int run_once(const Options& options) {
  if (options.model.empty() == options.template_file.empty())
    refuse("give either --model or --template");
  const ChatTemplate chat_template = options.model.empty()
                                         ? ChatTemplate::parse(read_all(options.template_file))
                                         : ChatTemplate::load(options.model);
  TextDefaults defaults;
  defaults.reasoning = reasoning_of_template(chat_template.source());
  defaults.content_format = find_content_format(options.content_format);
  defaults.trust_request_chat_template = true;
  if (!options.model.empty()) defaults.special_tokens = ChatTemplate::special_tokens(options.model);
  const auto request = openapi::parse_chat_completion(request_of(options));
  if (!request) throw Failure(request.error());
  const auto prompt = chat_prompt_text(*request, &chat_template, defaults);
  if (!prompt) throw Failure(prompt.error());
  std::cout << *prompt << std::flush;
  return 0;
}

void add_options(CLI::App& app, Options& options) {
  app.add_flag("--jsonl", options.jsonl, "One JSON object per line, each answered by one");
  app.add_option("--model", options.model,
                 "Folder with chat_template.jinja or tokenizer_config.json, or a .gguf file");
  app.add_option("--template", options.template_file, "A template's file, in place of a model's");
  app.add_option("--messages", options.messages_file,
                 "JSON list of messages, or the body of a chat request; - is standard input")
      ->default_val("-");
  app.add_option("--tools", options.tools_file, "JSON list of tools");
  app.add_option("--kwargs", options.kwargs,
                 "JSON object of further names, as {\"enable_thinking\": true}");
  app.add_option("--chat-template-content-format", options.content_format,
                 "As of `quire serve`: auto, string or openai")
      ->check(CLI::IsMember({"auto", "string", "openai"}));
  app.add_flag("--no-generation-prompt", options.no_generation_prompt,
               "End after the last message");
  app.add_flag("--continue", options.continue_final,
               "Leave the last message open, for the model to go on with");
  app.footer(
      "With --jsonl, messages go to the template as they are, and a question names its template and\n"
      "what it is about:\n"
      "  {\"template\": \"…\" or \"model\": \"DIR\", \"messages\": […], \"tools\": […], "
      "\"documents\": […],\n"
      "   \"add_generation_prompt\": true, \"continue_final_message\": false, \"kwargs\": {…},\n"
      "   \"now\": \"2025-03-08T09:05:07\"}\n"
      "  {\"template\": \"…\", \"context\": {…}}      only the names in context, nothing added;\n"
      "                                            its clock stands still unless \"now\" is given\n"
      "The answer is {\"text\": \"…\"} or {\"error\": \"…\", \"error_kind\": \"syntax\"}. Kinds: "
      "syntax, undefined,\n"
      "security, runtime, raised, recursion, arithmetic, overflow, type, value, lookup, attribute, "
      "limit,\n"
      "and request for a question that is wrong itself.\n\n"
      "Example: echo '[{\"role\": \"user\", \"content\": \"Hi\"}]' | quire render --model "
      "models/quire-tiny\n\n"
      "Exit codes: 0 answered, 1 the template fails or the input is wrong, above 100 for wrong "
      "flags.");
}

}  // namespace

int render_main(int argc, const char* const* argv) {
  Options options;
  CLI::App app("A conversation to the prompt that the model sees, with its chat template.",
               argv[0]);
  add_options(app, options);
  try {
    parse_forgivingly(app, argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  try {
    return options.jsonl ? run_jsonl() : run_once(options);
  } catch (const Failure& failure) {
    std::cerr << "quire render: " << failure.what() << '\n';
    return 1;
  }
}

}  // namespace quire
