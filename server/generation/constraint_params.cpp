#include "server/generation/constraint_params.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "openapi/json_writer.h"
#include "text/output/output_constraint.h"

namespace quire {

namespace {

using openapi::ChatCompletionRequest;
using openapi::GenerationRequest;
using openapi::OutputGrammar;
using openapi::ToolChoice;

// The grammar as a format of a structural tag, to the letter.
std::string answer_of(const OutputGrammar& grammar) {
  struct Words {
    const char* type;
    const char* member;
    bool is_json;
  };
  static constexpr Words kWords[] = {{"json_schema", "json_schema", true},
                                     {"regex", "pattern", false},
                                     {"choice", "choice", true},
                                     {"grammar", "grammar", false},
                                     {"structural_tag", "structural_tag", true}};
  const Words& words = kWords[static_cast<std::size_t>(grammar.kind)];
  std::string json;
  openapi::JsonWriter writer(json);
  writer.begin_object().key("type").string(words.type).key("place").string(grammar.place);
  writer.key(words.member);
  if (words.is_json) {
    writer.raw(grammar.text);
  } else {
    writer.string(grammar.text);
  }
  writer.end_object();
  return json;
}

OutputDemand demand_of(const GenerationRequest& request) {
  OutputDemand demand;
  if (request.grammar) demand.answer = answer_of(*request.grammar);
  demand.any_whitespace = request.any_whitespace;
  demand.whitespace_pattern = request.whitespace_pattern;
  demand.whitespace_place = request.whitespace_place;
  return demand;
}

Error no_thought(const GenerationRequest& request, std::string_view why) {
  return {ErrorCode::invalid_argument,
          fmt::format("{}: {}", request.thinking_budget_name, why), request.thinking_budget_name};
}

CallDemand calls_of(const ChatCompletionRequest& chat, const OutputFormat& format) {
  if (format.dialect == nullptr || !format.calls || chat.tools.empty()) return CallDemand::none;
  switch (chat.tool_choice.value_or(ToolChoice::automatic)) {
    case ToolChoice::none:
      return CallDemand::none;
    case ToolChoice::automatic:
      return CallDemand::automatic;
    case ToolChoice::required:
    case ToolChoice::named:
      return CallDemand::required;
  }
  return CallDemand::none;
}

}  // namespace

namespace {

Result<std::string> constraint_of(const ChatCompletionRequest& chat, const OutputFormat& format,
                                  bool is_part) {
  OutputDemand demand = demand_of(chat);
  demand.is_part = is_part;
  demand.calls = calls_of(chat, format);
  demand.tools = chat.tools;
  demand.parameters_at = chat.parameters_at;
  // Who names a function wants one call of it.
  demand.parallel = chat.parallel_tool_calls && chat.tool_choice != ToolChoice::named;
  demand.only = chat.allowed_tools;
  if (chat.tool_choice == ToolChoice::named) demand.only = {chat.named_tool};
  if (chat.thinking_budget) {
    if (format.reasoning == nullptr) {
      return no_thought(chat,
                        "this model's chat template shows no reasoning; TextDefaults::reasoning "
                        "names how it thinks");
    }
    demand.thinking_budget = static_cast<int>(
        std::min<std::int64_t>(*chat.thinking_budget, std::numeric_limits<int>::max()));
  }
  try {
    return output_constraint(format, demand);
  } catch (const Failure& failure) {
    return failure.error();
  } catch (const std::exception& e) {  // what a template's values cannot hold
    return Error{ErrorCode::invalid_argument, fmt::format("tools: {}", e.what()), "tools"};
  }
}

std::optional<ConstraintSpec> spec_of(std::string text) {
  if (text.empty()) return std::nullopt;
  return ConstraintSpec{.kind = ConstraintKind::structural_tag, .text = std::move(text)};
}

}  // namespace

Result<std::optional<ConstraintSpec>> chat_constraint(const ChatCompletionRequest& chat,
                                                      const OutputFormat& format) {
  auto text = constraint_of(chat, format, false);
  if (!text) return text.error();
  return spec_of(std::move(*text));
}

Result<std::optional<std::string>> rendered_constraint(const ChatCompletionRequest& chat,
                                                       const OutputFormat& format) {
  auto text = constraint_of(chat, format, true);
  if (!text) return text.error();
  return text->empty() ? std::nullopt : std::optional(std::move(*text));
}

Result<std::optional<ConstraintSpec>> text_constraint(const GenerationRequest& request) {
  if (request.thinking_budget) {
    return no_thought(request, "only chat knows where a thought begins and ends");
  }
  return spec_of(output_constraint({}, demand_of(request)));
}

// As vLLM has it: the word that follows a space is another one only where its first token is.
Result<std::vector<TokenWord>> bad_words(const std::vector<std::string>& words,
                                         const Tokenizer& tokenizer) {
  std::vector<TokenWord> result;
  for (const std::string& word : words) {
    const std::string bare = word.substr(word.find_first_not_of(' '));
    std::vector<TokenId> first = tokenizer.encode(bare, false);
    if (first.empty()) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("bad_words: \"{}\" has no tokens", word.substr(0, 100)), "bad_words"};
    }
    std::vector<TokenId> spaced = tokenizer.encode(' ' + bare, false);
    const bool differs =
        !spaced.empty() && spaced.size() == first.size() && spaced.front() != first.front();
    result.push_back({std::move(first)});
    if (differs) result.push_back({std::move(spaced)});
  }
  return result;
}

std::size_t constraint_size(const GenerationRequest& request) {
  std::size_t size = request.grammar ? request.grammar->text.size() : 0;
  for (const std::string& word : request.bad_words) size += word.size();
  return size;
}

}  // namespace quire
