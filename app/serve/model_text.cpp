#include "app/serve/model_text.h"

#include <algorithm>
#include <filesystem>

#include "app/serve/tokenizer_info.h"
#include "base/file.h"
#include "base/log.h"
#include "model/config.h"

namespace quire {

namespace {

constexpr std::size_t kMaxTemplateBytes = 64u << 20;

std::optional<ChatTemplate> load_template(const ServeFlags& flags) {
  if (!flags.chat_template.empty()) {
    // vLLM's rule: what is no file and has a template's braces is the template itself.
    std::error_code ignored;  // a template's text may be too long for a name
    const bool is_text = !std::filesystem::exists(flags.chat_template, ignored) &&
                         flags.chat_template.find_first_of("{}\n") != std::string::npos;
    return ChatTemplate::parse(is_text ? flags.chat_template
                                       : read_text_file(flags.chat_template, kMaxTemplateBytes),
                               ChatTemplate::special_tokens(flags.engine.model.path));
  }
  try {
    return ChatTemplate::load(flags.engine.model.path);
  } catch (const Failure& failure) {
    if (failure.error().code != ErrorCode::not_found) throw;
    log::warn("chat_template.missing", {{"model", flags.engine.model.path}});
    return std::nullopt;
  }
}

template <class T>
std::optional<float> to_float(const std::optional<T>& value) {
  return value ? std::optional<float>(static_cast<float>(*value)) : std::nullopt;
}

void set_sampling_defaults(TextDefaults& defaults, const ServeFlags& flags,
                           const GenerationConfig& of_model) {
  const GenerationConfig generation = generation_config_for(flags.generation, of_model);
  // do_sample false means greedy, which the other values would contradict.
  if (generation.do_sample == false && !generation.temperature) {
    defaults.temperature = 0.f;
  } else {
    defaults.temperature = to_float(generation.temperature);
  }
  defaults.top_p = to_float(generation.top_p);
  defaults.top_k = generation.top_k;
  defaults.min_p = to_float(generation.min_p);
  defaults.repetition_penalty = to_float(generation.repetition_penalty);
  defaults.max_new_tokens = generation.max_new_tokens;
  defaults.most_new_tokens = flags.generation.overrides.max_new_tokens;
}

void add_eos(std::vector<TokenId>& all, const std::vector<TokenId>& more) {
  for (const TokenId id : more) {
    if (std::find(all.begin(), all.end(), id) == all.end()) all.push_back(id);
  }
}

std::vector<TokenId> eos_tokens(const ServeFlags& flags, const GenerationConfig& generation,
                                const Tokenizer& tokenizer) {
  std::vector<TokenId> all;
  add_eos(all, generation.eos_token_ids);
  add_eos(all, read_model_config(flags.engine.model.path).eos_token_ids);
  const auto& names = tokenizer.special_strings();
  if (const auto eos = names.find("eos_token"); eos != names.end()) {
    if (const auto id = tokenizer.token_to_id(eos->second)) add_eos(all, {*id});
  }
  return all;
}

// By the flags; else the template shows how a model was taught to call tools and to think.
void set_parsers(TextDefaults& defaults, const ServeFlags& flags,
                 const std::optional<ChatTemplate>& chat_template) {
  const std::string source = chat_template ? chat_template->source() : std::string();
  defaults.dialect = flags.tool_call_parser ? find_dialect(*flags.tool_call_parser, source)
                                            : dialect_of_template(source);
  defaults.reasoning = flags.reasoning_parser ? find_reasoning_format(*flags.reasoning_parser)
                                              : reasoning_of_template(source);
  log::info("text.parsers",
            {{"tool_calls", defaults.dialect ? defaults.dialect->name : "none"},
             {"reasoning", defaults.reasoning ? defaults.reasoning->name : "none"}});
  if (flags.enable_auto_tool_choice && !defaults.dialect) {
    throw Failure({ErrorCode::invalid_argument,
                   "--enable-auto-tool-choice: the chat template shows no known form of tool "
                   "calls; name a parser with --tool-call-parser",
                   "--enable-auto-tool-choice"});
  }
}

void set_content_format(TextDefaults& defaults, const ServeFlags& flags,
                        const std::optional<ChatTemplate>& chat_template) {
  defaults.content_format = find_content_format(flags.content_format);
  if (!chat_template) return;
  const ContentFormat found = chat_template->content_format(false);
  const ContentFormat used = defaults.content_format.value_or(found);
  const log::Level level = used == found ? log::Level::info : log::Level::warn;
  log::write(level, "chat_template.content_format",
             {{"used", name_of(used)}, {"detected", name_of(found)}});
}

}  // namespace

std::unique_ptr<const TextPipeline> load_model_text(const ServeFlags& flags) {
  auto tokenizer = Tokenizer::load(flags.engine.model.path);
  auto chat_template = load_template(flags);
  const GenerationConfig generation = read_generation_config(flags.engine.model.path);
  TextDefaults defaults;
  set_sampling_defaults(defaults, flags, generation);
  set_parsers(defaults, flags, chat_template);
  set_content_format(defaults, flags, chat_template);
  defaults.tokenizer_info = tokenizer_info(flags.engine.model.path, chat_template);
  defaults.eos_token_ids = eos_tokens(flags, generation, *tokenizer);
  defaults.template_kwargs = jinja::parse_json(flags.default_kwargs).dict();
  defaults.special_tokens = ChatTemplate::special_tokens(flags.engine.model.path);
  defaults.trust_request_chat_template = flags.trust_request_chat_template;
  defaults.template_was_given = !flags.chat_template.empty();
  defaults.exclude_tools_when_none = flags.exclude_tools_when_none;
  defaults.prompt_tokens_details = flags.prompt_tokens_details;
  defaults.force_include_usage = flags.force_include_usage;
  return std::make_unique<TextPipeline>(std::move(tokenizer), std::move(chat_template),
                                        std::move(defaults));
}

}  // namespace quire
