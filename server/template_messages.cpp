#include "server/template_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/template/chat_template.h"

namespace quire {

namespace {

using jinja::Dict;
using jinja::Value;
using openapi::ChatCompletionRequest;
using openapi::ChatMessage;
using Messages = std::vector<ChatMessage>;

constexpr std::string_view kBetweenInstructions = "\n\n";
constexpr std::string_view kBilling = "x-anthropic-billing-header";
constexpr std::string_view kUsualRoles[] = {"system", "developer", "user", "assistant", "tool"};

bool names(std::string_view source, std::string_view role) {
  for (const char quote : {'\'', '"'}) {
    if (source.find(fmt::format("{0}{1}{0}", quote, role)) != source.npos) return true;
  }
  return false;
}

// Replies of models carry the arguments as JSON text; templates want to walk them. What is no
// object, as of a call that max_tokens cut off, is one of nothing, as in vLLM: it stays in the
// conversation, where a template that fails would fail at every turn.
Value arguments_value(const std::string& arguments) {
  try {
    Value value = jinja::parse_json(arguments.empty() ? "{}" : arguments);
    if (value.is(Value::Kind::dict)) return value;
  } catch (const Failure&) {
  }
  return Value(Dict());
}

Value tool_call_value(const openapi::ToolCall& call) {
  Dict function, entry;
  function.set("name", Value(call.function.name));
  function.set("arguments", arguments_value(call.function.arguments));
  if (!call.id.empty()) entry.set("id", Value(call.id));
  entry.set("type", Value("function"));
  entry.set("function", Value(std::move(function)));
  return Value(std::move(entry));
}

Value part_value(std::string_view text) {
  static const Value kType("type"), kText("text");
  Dict part;
  part.set(kType, kText);
  part.set(kText, Value(text));
  return Value(std::move(part));
}

void for_each_part(const ChatMessage& message, const auto& visit) {
  if (!message.content) return;
  const std::string_view content = *message.content;
  std::size_t begin = 0;
  for (const std::size_t end : message.part_breaks) {
    visit(content.substr(begin, end - begin));
    begin = end + 1;
  }
  visit(content.substr(begin));
}

// Without parts that say nothing, which vLLM leaves out where it makes one text.
std::string text_of(const ChatMessage& message) {
  if (message.part_breaks.empty()) return message.content.value_or("");
  std::string text;
  for_each_part(message, [&](std::string_view part) {
    if (!text.empty() && !part.empty()) text += '\n';
    text += part;
  });
  return text;
}

// vLLM's rule: a tool's parts are joined for every template, most of which take a text there.
Value content_value(const ChatMessage& message, ContentFormat format) {
  if (format == ContentFormat::text) return Value(text_of(message));
  if (message.role == "tool") return Value(message.content.value_or(""));
  jinja::List parts;
  for_each_part(message, [&](std::string_view part) { parts.push_back(part_value(part)); });
  return Value(std::move(parts));
}

// Templates that look for "thinking", gpt-oss's, take beside calls a thought or a text, which is
// then a thought to them, and not both.
void set_thinking(Dict& entry, const ChatMessage& message, ContentFormat format) {
  std::string thinking = *message.reasoning;
  if (!message.tool_calls.empty() && message.content && !message.content->empty()) {
    thinking += "\n\n" + *message.content;
    entry.set("content", format == ContentFormat::text ? Value("") : Value(jinja::List()));
  }
  entry.set("thinking", Value(std::move(thinking)));
}

Value message_value(const ChatMessage& message, bool names_thinking, ContentFormat format) {
  Dict entry;
  static const Value kRole("role"), kContent("content");
  entry.set(kRole, Value(message.role));
  entry.set(kContent, content_value(message, format));
  if (message.reasoning) {
    entry.set("reasoning", Value(*message.reasoning));
    entry.set("reasoning_content", Value(*message.reasoning));
    if (names_thinking) set_thinking(entry, message, format);
  }
  if (message.name) entry.set("name", Value(*message.name));
  if (message.tool_call_id) entry.set("tool_call_id", Value(*message.tool_call_id));
  if (!message.tool_calls.empty()) {
    jinja::List calls;
    for (const auto& call : message.tool_calls) calls.push_back(tool_call_value(call));
    entry.set("tool_calls", Value(std::move(calls)));
  }
  return Value(std::move(entry));
}

Value list_of(const Messages& messages, std::string_view source, ContentFormat format) {
  jinja::List list;
  const auto has_reasoning = [](const ChatMessage& message) {
    return message.reasoning.has_value();
  };
  const bool names_thinking = std::ranges::any_of(messages, has_reasoning) &&
                              source.find("message.thinking") != source.npos;
  for (const ChatMessage& message : messages)
    list.push_back(message_value(message, names_thinking, format));
  return Value(std::move(list));
}

bool is_developer(const ChatMessage& message) { return message.role == "developer"; }

bool is_instruction(const ChatMessage& message) {
  return message.role == "system" || is_developer(message);
}

// Makes what instructs before `end` one system message at the beginning.
void join_instructions(Messages& messages, Messages::iterator end) {
  const auto rest = std::stable_partition(messages.begin(), end, is_instruction);
  if (rest == messages.begin()) return;
  ChatMessage& first = messages.front();
  first.role = "system";
  if (rest - messages.begin() > 1) first.part_breaks.clear();
  std::string& joined = first.content ? *first.content : first.content.emplace();
  for (auto next = messages.begin() + 1; next != rest; ++next) {
    if (!next->content || next->content->empty()) continue;
    if (!joined.empty()) joined += kBetweenInstructions;
    joined += *next->content;
  }
  messages.erase(messages.begin() + 1, rest);
}

void rename_developers(Messages& messages) {
  const auto run = std::find_if_not(messages.begin(), messages.end(), is_instruction);
  const bool joins = std::any_of(messages.begin(), run, is_developer);
  for (ChatMessage& message : messages) {
    if (is_developer(message)) message.role = "system";
  }
  if (joins) join_instructions(messages, run);
}

// Claude Code's own line, which gateways pass on in chats: another one in each request, after which
// no prefix would be found again.
std::string_view without_billing(std::string_view part) {
  if (part.starts_with(kBilling)) part.remove_prefix(std::min(part.find('\n'), part.size() - 1) + 1);
  return part;
}

bool has_billing(const ChatMessage& message) {
  bool has = false;
  if (message.role == "system")
    for_each_part(message, [&](std::string_view part) { has = has || part.starts_with(kBilling); });
  return has;
}

// A part that is nothing else is none.
void drop_billing(ChatMessage& message) {
  if (!has_billing(message)) return;
  const ChatMessage given = message;
  message.content.reset();
  message.part_breaks.clear();
  for_each_part(given, [&](std::string_view part) {
    const std::string_view rest = without_billing(part);
    if (rest.empty() && !part.empty()) return;
    if (message.content) {
      message.part_breaks.push_back(message.content->size());
      message.content->push_back('\n');
    } else {
      message.content.emplace();
    }
    message.content->append(rest);
  });
}

}  // namespace

bool may_join_instructions(const ChatCompletionRequest& request, std::string_view source) {
  const Messages& messages = request.messages;
  if (messages.empty()) return false;
  const auto has_later = [&](const auto& is_one) {
    return std::any_of(messages.begin() + 1, messages.end(), is_one);
  };
  const bool may_join = request.may_join_system || request.joins_system ||
                        has_later(is_developer) ||
                        (is_developer(messages[0]) && !names(source, "developer"));
  return may_join && has_later(is_instruction);
}

ChatCompletionRequest with_joined_instructions(ChatCompletionRequest request) {
  std::ranges::for_each(request.messages, drop_billing);
  join_instructions(request.messages, request.messages.end());
  return request;
}

Value template_messages(const openapi::ChatCompletionRequest& request, std::string_view source,
                        ContentFormat format) {
  const bool moves =
      (request.joins_system || std::ranges::any_of(request.messages, is_developer)) &&
      !names(source, "developer");
  if (!moves && std::ranges::none_of(request.messages, has_billing))
    return list_of(request.messages, source, format);
  Messages messages = request.messages;
  std::ranges::for_each(messages, drop_billing);
  if (!moves) {
    // As they stand.
  } else if (request.joins_system) {
    join_instructions(messages, messages.end());
  } else {
    rename_developers(messages);
  }
  return list_of(messages, source, format);
}

namespace {

bool is_own_role(const ChatMessage& message, std::string_view source) {
  return std::ranges::find(kUsualRoles, message.role) == std::end(kUsualRoles) &&
         !names(source, message.role);
}

constexpr std::size_t kMostRoles = 64;

// A message's mark, which no text holds by chance: digits, since templates may change letters.
constexpr int kIndexDigits = 8;
std::string new_mark() {
  std::random_device random;
  return fmt::format("7{:010}{:010}", random(), random());
}

void set_mark(ChatMessage& message, std::string_view mark, std::size_t index) {
  message.content = fmt::format("{}{:0{}}", mark, index, kIndexDigits);
  message.part_breaks.clear();
}

// Which messages' marks, each with the message's place behind it, stand in the text.
std::vector<bool> find_marks(std::string_view text, std::string_view mark, std::size_t messages) {
  std::vector<bool> found(messages);
  for (auto at = text.find(mark); at != text.npos; at = text.find(mark, at + mark.size())) {
    const std::string_view digits = text.substr(at + mark.size(), kIndexDigits);
    std::size_t index = messages;
    std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (index < messages) found[index] = true;
  }
  return found;
}

}  // namespace

bool shows_instructions(const ChatCompletionRequest& request, const RenderRequest& render) {
  const std::string mark = new_mark();
  ChatCompletionRequest marked = request;
  std::vector<bool> wanted(request.messages.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    ChatMessage& message = marked.messages[i];
    if (!is_instruction(message)) continue;
    drop_billing(message);
    if (!message.content || message.content->empty()) continue;
    wanted[i] = true;
    set_mark(message, mark, i);
  }
  const RenderResult result = render(marked);
  if (!result) return false;
  const std::vector<bool> shown = find_marks(result.text, mark, wanted.size());
  return std::ranges::equal(wanted, shown, [](bool want, bool has) { return has || !want; });
}

Result<void> check_roles(const ChatCompletionRequest& request, std::string_view source,
                         const RenderRequest& render) {
  std::map<std::string_view, bool> own;  // by role, since looking for one reads the template
  for (const ChatMessage& message : request.messages) {
    if (own.contains(message.role)) continue;
    own.emplace(message.role, is_own_role(message, source));
    if (own.size() <= kMostRoles) continue;
    return Error{ErrorCode::invalid_argument,
                 fmt::format("messages: at most {} roles, one of which is \"{}\"", kMostRoles,
                             message.role),
                 "messages"};
  }
  const auto is_own = [&](const ChatMessage& message) { return own.at(message.role); };
  if (std::ranges::none_of(request.messages, is_own)) return {};
  const std::string mark = new_mark();
  ChatCompletionRequest marked = request;
  for (std::size_t i = 0; i < marked.messages.size(); ++i) {
    ChatMessage& message = marked.messages[i];
    if (!is_own(message)) continue;
    set_mark(message, mark, i);
  }
  const RenderResult result = render(marked);
  if (!result) return {};  // it reads these messages, to which other words do not fit
  const std::vector<bool> shown = find_marks(result.text, mark, request.messages.size());
  for (std::size_t i = 0; i < request.messages.size(); ++i) {
    const ChatMessage& message = request.messages[i];
    if (shown[i] || !is_own(message)) continue;
    return Error{ErrorCode::invalid_argument,
                 fmt::format("\"{}\" is not a role that the model's chat template knows: it would "
                             "leave the message out; the usual ones are {}",
                             message.role, fmt::join(kUsualRoles, ", ")),
                 fmt::format("messages[{}].role", i)};
  }
  return {};
}

}  // namespace quire
