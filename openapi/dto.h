#pragma once
// The schemas of openapi.yaml as plain structs, under the same names. What a client may leave out
// is optional or has the contract's default; JSON null counts as left out.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fields.h"
#include "base/ids.h"
#include "openapi/tool_names.h"

namespace quire::openapi {

struct StreamOptions {
  bool include_usage = false;
  bool continuous_usage_stats = false;
};

// What the whole answer must match: one of response_format, structured_outputs and guided_*.
struct OutputGrammar {
  enum class Kind : std::uint8_t { json_schema, regex, choice, grammar, structural_tag };
  Kind kind = Kind::json_schema;
  std::string text{};   // JSON text of a schema, a list or a tag; else the text itself
  std::string place{};  // JSON pointer of it in the request
};

inline constexpr double kMaxTimeoutSeconds = 86400;  // that a request may give itself

// What chat and completion requests have in common.
struct GenerationRequest {
  std::string model{};
  std::optional<std::string> request_id{};
  bool stream = false;
  std::optional<StreamOptions> stream_options{};
  std::int64_t n = 1;
  std::optional<std::int64_t> max_tokens{};
  std::string max_tokens_name = "max_tokens";  // the member that it came in
  bool fits_max_tokens = false;  // more than the context has left is as many as it has left

  std::optional<double> temperature{};
  std::optional<double> top_p{};
  std::optional<std::int64_t> top_k{};
  std::optional<double> min_p{};
  std::optional<double> repetition_penalty{};
  double presence_penalty = 0;
  double frequency_penalty = 0;
  std::optional<std::int64_t> seed{};
  std::vector<std::pair<TokenId, double>> logit_bias{};
  std::vector<TokenId> allowed_token_ids{};

  std::vector<std::string> stop{};
  std::vector<TokenId> stop_token_ids{};
  bool include_stop_str_in_output = false;
  std::int64_t min_tokens = 0;
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  bool spaces_between_special_tokens = true;  // of slow tokenizers alone: no effect here

  bool echo = false;
  std::optional<bool> add_special_tokens{};
  std::optional<std::int64_t> truncate_prompt_tokens{};  // −1: to what leaves room for the output
  bool truncates_right = false;  // the prompt's first tokens are kept, not its last
  std::optional<std::int64_t> prompt_logprobs{};
  std::int64_t priority = 0;
  std::optional<double> timeout{};  // seconds from the request's arrival
  std::string cache_salt{};
  std::string kv_transfer_params{};  // JSON text of an object; empty: none
  bool return_token_ids = false;
  bool return_tokens_as_token_ids = false;

  std::optional<OutputGrammar> grammar{};
  bool any_whitespace = true;                       // between the tokens of its JSON
  std::optional<std::string> whitespace_pattern{};  // in place of white space
  std::string whitespace_place{};                   // JSON pointer of the pattern
  std::vector<std::string> bad_words{};
  std::optional<std::int64_t> thinking_budget{};  // tokens
  std::string thinking_budget_name{};             // the member that it came in

  std::vector<std::string> unsupported{};      // members that ask for something not offered
  std::vector<std::string> unknown_members{};  // ignored

  // Members that are read by their type, and that the engine's SamplingParams call the same:
  // parser, parameters and rendering walk this list.
  using SamplingFields =
      FieldList<&GenerationRequest::temperature, &GenerationRequest::top_p,
                &GenerationRequest::top_k, &GenerationRequest::min_p,
                &GenerationRequest::repetition_penalty, &GenerationRequest::presence_penalty,
                &GenerationRequest::frequency_penalty, &GenerationRequest::seed,
                &GenerationRequest::min_tokens, &GenerationRequest::ignore_eos,
                &GenerationRequest::stop_token_ids>;
};

struct FunctionCall {
  std::string name{};
  std::string arguments{};  // JSON text
};

struct ToolCall {
  std::string id{};
  FunctionCall function{};
};

struct ChatMessage {
  std::string role{};
  std::optional<std::string> content{};    // text parts are joined by line ends
  std::vector<std::size_t> part_breaks{};  // where in content those line ends are
  std::optional<std::string> reasoning{};
  std::optional<std::string> name{};
  std::optional<std::string> tool_call_id{};
  std::vector<ToolCall> tool_calls{};
};

enum class ToolChoice : std::uint8_t { automatic, none, required, named };

struct ChatCompletionRequest : GenerationRequest {
  std::vector<ChatMessage> messages{};
  bool joins_system = false;  // system and developer messages make one, the first
  bool may_join_system = false;  // … where the template refuses them in their places
  std::string tools{};        // JSON text of an array; empty: none
  // Where the client's tool holds the schema of its parameters: a JSON pointer below the tool.
  std::string_view parameters_at = "function/parameters";
  ToolNames tool_names{};
  bool gave_tools = false;  // a list, perhaps of none
  std::optional<ToolChoice> tool_choice{};
  std::string named_tool{};  // of ToolChoice::named; one of tool_names
  std::vector<std::string> allowed_tools{};  // those that may be called; empty: all
  bool parallel_tool_calls = true;
  bool logprobs = false;
  bool logprobs_of_content = false;  // only of tokens whose text is content, as responses have them
  std::int64_t top_logprobs = 0;
  bool include_reasoning = true;
  std::optional<std::string> reasoning_effort{};
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  std::optional<std::string> chat_template{};
  std::string chat_template_kwargs{};  // JSON text of an object; empty: none
  std::string documents{};             // JSON text of an array; empty: none
};

// Either text or ids.
struct Prompt {
  std::string text{};
  std::vector<TokenId> ids{};
  bool is_text = true;
};

struct CompletionRequest : GenerationRequest {
  std::vector<Prompt> prompts{};
  std::string suffix{};  // of a text whose middle is asked for; empty: none
  std::optional<std::int64_t> logprobs{};
};

struct TokenizeRequest {
  std::string model{};
  std::optional<std::string> prompt{};
  std::optional<ChatCompletionRequest> chat{};  // instead of prompt: messages, tools and template
  std::optional<bool> add_special_tokens{};  // true for a prompt, false for messages
  bool return_token_strs = false;
};

struct DetokenizeRequest {
  std::string model{};
  std::vector<TokenId> tokens{};
};

// Responses.

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
  std::optional<std::int64_t> cached_tokens{};
  std::optional<std::int64_t> reasoning_tokens{};
};

constexpr double kLowestLogprob = -9999;  // what stands for a probability of zero, as in vLLM

struct TopLogprob {
  std::string token{};  // UTF-8, bad bytes as U+FFFD; or token_id:7
  std::string bytes{};
  double logprob = 0;
  TokenId id = 0;
};

struct TokenLogprob : TopLogprob {
  std::vector<TopLogprob> top{};  // most probable first
  int rank = 0;                   // of the token, 1 = most probable
};

struct ChatChoice {
  int index = 0;
  std::optional<std::string> content{};
  std::optional<std::string> reasoning{};
  std::vector<ToolCall> tool_calls{};
  std::optional<std::vector<TokenLogprob>> logprobs{};
  std::string finish_reason{};
  std::string stop_reason = "null";  // JSON text: null, a string or a token id
  std::optional<std::vector<TokenId>> token_ids{};
};

struct ChatCompletionResponse {
  std::string id{};
  std::int64_t created = 0;
  std::string model{};
  std::string system_fingerprint{};
  std::vector<ChatChoice> choices{};
  Usage usage{};
  std::string kv_transfer_params{};
  std::optional<std::vector<TokenId>> prompt_token_ids{};
  std::optional<std::vector<TokenLogprob>> prompt_logprobs{};  // of all but the first token
};

struct CompletionLogprobs {
  std::vector<TokenLogprob> tokens{};
  std::int64_t first_offset = 0;  // of the first token, in characters of what tokens read as
  bool starts_prompt = false;     // the first token begins the prompt: nothing predicted it
};

struct CompletionChoice {
  int index = 0;
  std::string text{};
  std::optional<CompletionLogprobs> logprobs{};
  std::string finish_reason{};       // empty: null
  std::string stop_reason = "null";  // JSON text
  std::optional<std::vector<TokenId>> token_ids{};
  std::optional<std::vector<TokenId>> prompt_token_ids{};
  std::optional<std::vector<TokenLogprob>> prompt_logprobs{};  // of all but the first token
};

struct CompletionResponse {
  std::string id{};
  std::int64_t created = 0;
  std::string model{};
  std::string system_fingerprint{};
  std::vector<CompletionChoice> choices{};
  Usage usage{};
  std::string kv_transfer_params{};
};

// What one engine allocated for the model; sizes as in vllm:cache_config_info.
struct EngineCard {
  struct KvGroup {
    std::string kind{};
    int block_size = 0;         // tokens
    int kernel_block_size = 0;  // tokens
    std::int64_t page_bytes = 0;
    int layers = 0;
  };
  struct MemoryUse {
    std::string purpose{};
    std::int64_t planned_bytes = 0;
    std::int64_t allocated_bytes = 0;
    std::int64_t pinned_bytes = 0;  // of the host
  };
  int engine = 0;
  std::string device{};
  std::string dtype{};
  std::string kv_cache_dtype{};
  int max_model_len = 0;
  int block_size = 0;  // tokens
  int num_gpu_blocks = 0;
  std::int64_t kv_cache_size_tokens = 0;
  std::vector<KvGroup> kv_groups{};
  std::vector<MemoryUse> memory{};
};

struct ModelCard {
  std::string id{};
  std::int64_t created = 0;
  std::string root{};
  std::int64_t max_model_len = 0;
  std::vector<EngineCard> engines{};
};

struct TokenizeResponse {
  std::vector<TokenId> tokens{};
  std::int64_t max_model_len = 0;
  std::optional<std::vector<std::string>> token_strs{};
};

}  // namespace quire::openapi
