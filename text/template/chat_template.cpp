#include "text/template/chat_template.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "gguf/archive.h"
#include "gguf/special_strings.h"
#include "jinja/evaluation.h"
#include "jinja/filters/globals.h"
#include "jinja/syntax/statements.h"
#include "jinja/values/operators.h"
#include "jinja/values/search.h"
#include "jinja/values/unicode.h"
#include "text/tokenizer/tokenizer_config.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

using jinja::Dict;
using jinja::List;
using jinja::Value;
using Kind = TemplateError::Kind;

constexpr std::string_view kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";
constexpr std::string_view kBareContinueTag = kContinueTag.substr(0, kContinueTag.size() - 1);

std::tm local_now() {
  const std::time_t now = std::time(nullptr);
  std::tm time{};
  localtime_r(&now, &time);
  return time;
}

Dict without_nulls(const Dict& message) {
  Dict kept;
  for (const auto& [key, value] : message) {
    if (!value.is_none()) kept.set(key, value);
  }
  return kept;
}

// Reasoning goes by three names; templates know one or the other.
constexpr std::array<std::string_view, 3> kReasoningNames{"reasoning_content", "thinking",
                                                          "reasoning"};

Dict with_reasoning_aliases(Dict message) {
  for (const std::string_view name : kReasoningNames) {
    const Value* found = message.find(name);
    if (found == nullptr) continue;
    const Value reasoning = *found;
    Dict aliased;
    aliased.set("thinking", reasoning);
    for (const auto& [key, value] : message) aliased.set(key, value);
    aliased.set("reasoning_content", reasoning);
    return aliased;
  }
  return message;
}

bool is_ready(const Value& message) {
  if (!message.is(Value::Kind::dict)) return true;
  for (const auto& [key, value] : message.dict()) {
    if (value.is_none()) return false;
  }
  return std::ranges::none_of(kReasoningNames, [&](std::string_view name) {
    return message.dict().find(name) != nullptr;
  });
}

Value prepared_messages(const Value& messages) {
  if (!messages.is(Value::Kind::list)) return messages;
  if (std::ranges::all_of(messages.list(), is_ready)) return messages;
  List prepared;
  for (const Value& message : messages.list()) {
    prepared.push_back(is_ready(message)
                           ? message
                           : Value(with_reasoning_aliases(without_nulls(message.dict()))));
  }
  return Value(std::move(prepared));
}

// The text that the model shall continue, and the messages with the marker after it.
struct Continuation {
  Value messages;
  std::string text;
};

// Puts the marker after the last part that has a text.
Value mark_parts(const List& parts, std::string& text) {
  List marked = parts;
  for (auto part = marked.rbegin(); part != marked.rend(); ++part) {
    const Value* found = part->is(Value::Kind::dict) ? part->dict().find("text") : nullptr;
    if (found == nullptr || !found->is_string()) continue;
    text = found->string();
    Dict with_marker = part->dict();
    with_marker.set("text", Value(text + std::string(kContinueTag)));
    *part = Value(std::move(with_marker));
    return Value(std::move(marked));
  }
  jinja::fail(Kind::value,
              "continue_final_message is set but the final message has no text to continue");
}

Continuation mark_final_message(const Value& messages) {
  if (!messages.is(Value::Kind::list) || messages.list().empty() ||
      !messages.list().back().is(Value::Kind::dict)) {
    jinja::fail(Kind::value, "continue_final_message is set but there is no final message");
  }
  List marked = messages.list();
  Dict last = marked.back().dict();
  const Value* content = last.find("content");
  if (content == nullptr) {
    jinja::fail(Kind::lookup, "continue_final_message is set but the final message has no content");
  }
  Continuation continuation;
  if (content->is_string()) {
    continuation.text = content->string();
    last.set("content", Value(continuation.text + std::string(kContinueTag)));
  } else if (content->is(Value::Kind::list)) {
    last.set("content", mark_parts(content->list(), continuation.text));
  } else {
    jinja::fail(
        Kind::type,
        "continue_final_message is set but the final message's content is neither text nor parts");
  }
  marked.back() = Value(std::move(last));
  continuation.messages = Value(std::move(marked));
  return continuation;
}

// Whether a rendered text has a message's words, but for blanks around them; in time that grows
// with their sizes alone.
bool shows(std::string_view rendered, std::string_view words) {
  return jinja::find_text(rendered, jinja::unicode::strip(words, true, true)) != rendered.npos;
}

void cut_at_marker(std::string& rendered, const std::string& continued) {
  const std::size_t marker = rendered.rfind(kBareContinueTag);
  if (marker == rendered.npos || !shows(rendered, continued)) {
    jinja::fail(Kind::value,
                "continue_final_message is set but the final message does not appear in the chat "
                "after applying the "
                "chat template");
  }
  const bool keeps_space = rendered.compare(marker, kContinueTag.size(), kContinueTag) == 0;
  rendered.resize(marker);
  if (!keeps_space) rendered.resize(jinja::unicode::strip(rendered, false, true).size());
}

std::string render_names(const jinja::TemplateTree& tree, const Dict& names,
                         std::optional<std::tm> now) {
  jinja::Evaluation evaluation(jinja::global_names(), names, now ? *now : local_now());
  try {
    return jinja::render_tree(tree, evaluation);
  } catch (TemplateError& error) {
    if (error.line == 0) error.line = evaluation.line;
    throw;
  }
}

RenderResult caught(const auto& render) {
  try {
    return {render(), {}};
  } catch (const TemplateError& error) {
    return {{}, error};
  }
}

std::unique_ptr<jinja::TemplateTree> parse_or_throw(const std::string& source,
                                                    const std::string& origin) {
  try {
    return jinja::parse_template(source);
  } catch (const TemplateError& error) {
    throw TemplateFailure(error, origin);
  }
}

constexpr std::size_t kMaxFileBytes = 64u << 20;

std::optional<JsonDocument> read_json(const fs::path& path) {
  if (!fs::exists(path)) return {};
  return std::optional<JsonDocument>(std::in_place, read_text_file(path, kMaxFileBytes), path);
}

}  // namespace

struct ChatTemplate::Parts {
  struct Tree {
    std::unique_ptr<jinja::TemplateTree> tree;
    ContentFormat content = ContentFormat::text;
    explicit operator bool() const { return tree != nullptr; }
  };
  Tree main;
  // Where the model has another one for requests with tools.
  Tree with_tools;
  Dict tokens;
  std::string source;

  void add(const std::string& source, const std::string& origin, bool is_for_tools) {
    Tree& into = is_for_tools ? with_tools : main;
    into.tree = parse_or_throw(source, origin);
    into.content = content_format_of(*into.tree);
    this->source += source;
  }

  void need_one(const std::string& model) const {
    if (main || with_tools) return;
    throw Failure(ErrorCode::not_found, model + ": the model has no chat template");
  }

  const Tree& for_request(bool has_tools) const {
    return has_tools && with_tools ? with_tools : main;
  }

  // A text, or texts by name: a list of them, or (as transformers has them in memory) an object.
  void add_all(const Json& field) {
    const std::string origin = field.file().string();
    const auto is_needed = [](std::string_view name) {
      return name == "tool_use" || name == "default";
    };
    if (field.is_object()) {
      for (const auto& [name, source] : field.members())
        if (is_needed(name)) add(std::string(source.as_string()), origin, name == "tool_use");
    } else if (field.is_array()) {
      for (const Json entry : field.items()) {
        const std::string name = entry.need_text("name");
        if (is_needed(name)) add(entry.need_text("template"), origin, name == "tool_use");
      }
    } else {
      add(std::string(field.as_string()), origin, false);
    }
  }
};

std::unique_ptr<ChatTemplate::Parts> ChatTemplate::gguf_parts(const std::string& model) {
  const gguf::Archive archive(model);
  const gguf::Metadata& metadata = archive.metadata();
  auto parts = std::make_unique<Parts>();
  constexpr const char* kMain = "tokenizer.chat_template";
  constexpr const char* kForTools = "tokenizer.chat_template.tool_use";
  if (const auto text = metadata.text(kMain)) parts->add(std::string(*text), model, false);
  if (const auto text = metadata.text(kForTools)) parts->add(std::string(*text), model, true);
  parts->need_one(model);
  return parts;
}

ChatTemplate::ChatTemplate(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

jinja::Dict ChatTemplate::special_tokens(const std::string& model) {
  const auto strings = gguf::is_gguf(model)
                           ? gguf::special_strings(gguf::Archive(model).metadata())
                           : read_tokenizer_config(model).special_strings;
  Dict tokens;
  for (const auto& [name, text] : strings) tokens.set(name, Value(text));
  return tokens;
}

ChatTemplate ChatTemplate::parse(std::string source, Dict special_tokens) {
  auto parts = std::make_unique<Parts>();
  parts->tokens = std::move(special_tokens);
  parts->add(source, "", false);
  return ChatTemplate(std::move(parts));
}

ChatTemplate ChatTemplate::load(const std::string& model_dir) {
  const bool is_gguf = gguf::is_gguf(model_dir);
  auto parts = is_gguf ? gguf_parts(model_dir) : folder_parts(model_dir);
  parts->tokens = special_tokens(model_dir);
  return ChatTemplate(std::move(parts));
}

std::unique_ptr<ChatTemplate::Parts> ChatTemplate::folder_parts(const std::string& model_dir) {
  const fs::path dir(model_dir);
  const auto config = read_json(dir / "tokenizer_config.json");
  auto parts = std::make_unique<Parts>();
  const auto processor = read_json(dir / "chat_template.json");
  const auto add_file = [&](const fs::path& file, bool is_for_tools) {
    parts->add(read_text_file(file, kMaxFileBytes), file.string(), is_for_tools);
  };
  const auto add_field = [&](const std::optional<JsonDocument>& document) {
    const auto field = document ? document->object().find({"chat_template"}) : std::nullopt;
    if (field) parts->add_all(*field);
    return field.has_value();
  };
  if (const fs::path file = dir / "chat_template.jinja"; fs::exists(file)) {
    add_file(file, false);
    const fs::path for_tools = dir / "additional_chat_templates" / "tool_use.jinja";
    if (fs::exists(for_tools)) add_file(for_tools, true);
  } else if (!add_field(processor)) {
    add_field(config);
  }
  parts->need_one(model_dir);
  return parts;
}

RenderResult ChatTemplate::render(const ChatTemplateInput& input) const {
  return caught([&] {
    if (input.continue_final_message && input.add_generation_prompt) {
      jinja::fail(Kind::value,
                  "continue_final_message and add_generation_prompt are not compatible: one "
                  "continues the final "
                  "message, the other begins a new one");
    }
    const auto& tree = parts_->for_request(!input.tools.is_none()).tree;
    if (!tree)
      jinja::fail(Kind::value, "the model has a chat template for requests with tools only");

    Continuation continuation{prepared_messages(input.messages), {}};
    if (input.continue_final_message) continuation = mark_final_message(continuation.messages);
    Dict names = parts_->tokens;
    for (const auto& [key, value] : input.kwargs) names.set(key, value);
    static const Value kMessages("messages"), kTools("tools"), kDocuments("documents"),
        kAddGenerationPrompt("add_generation_prompt");
    names.set(kMessages, continuation.messages);
    names.set(kTools, input.tools);
    names.set(kDocuments, input.documents);
    names.set(kAddGenerationPrompt, Value(input.add_generation_prompt));
    std::string text = render_names(*tree, names, input.now);
    if (input.continue_final_message) cut_at_marker(text, continuation.text);
    return text;
  });
}

RenderResult ChatTemplate::render_context(const Dict& context, std::optional<std::tm> now) const {
  return caught([&] { return render_names(*parts_->main.tree, context, now); });
}

ContentFormat ChatTemplate::content_format(bool has_tools) const {
  return parts_->for_request(has_tools).content;
}

const std::string& ChatTemplate::source() const { return parts_->source; }

}  // namespace quire
