#include <algorithm>

#include "base/utf8.h"
#include "openapi/dto_json.h"
#include "openapi/json_writer.h"

namespace quire::openapi {

namespace {

// As they are written: bad bytes as U+FFFD.
std::int64_t characters(std::string_view text) {
  std::int64_t count = 0;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at != end; ++count) at += utf8_step(at, end).length;
  return count;
}

double finite(double logprob) { return std::max(logprob, kLowestLogprob); }

void write_top_logprob(JsonWriter& json, const TopLogprob& entry) {
  json.key("token").string(entry.token).key("logprob").number(finite(entry.logprob));
  json.key("bytes").begin_array();
  for (const char byte : entry.bytes) json.integer(static_cast<unsigned char>(byte));
  json.end_array();
}

void write_tool_calls(JsonWriter& json, const std::vector<ToolCall>& calls) {
  json.begin_array();
  for (const ToolCall& call : calls) {
    json.begin_object().key("id").string(call.id).key("type").string("function");
    json.key("function").begin_object().key("name").string(call.function.name);
    json.key("arguments").string(call.function.arguments).end_object().end_object();
  }
  json.end_array();
}

void write_usage(JsonWriter& json, const Usage& usage) {
  json.begin_object().key("prompt_tokens").integer(usage.prompt_tokens);
  json.key("total_tokens").integer(usage.prompt_tokens + usage.completion_tokens);
  json.key("completion_tokens").integer(usage.completion_tokens);
  if (usage.cached_tokens) {
    json.key("prompt_tokens_details").begin_object();
    json.key("cached_tokens").integer(*usage.cached_tokens).end_object();
  }
  if (usage.reasoning_tokens) {
    json.key("completion_tokens_details").begin_object();
    json.key("reasoning_tokens").integer(*usage.reasoning_tokens).end_object();
  }
  json.end_object();
}

void write_chat_logprobs(JsonWriter& json, const std::vector<TokenLogprob>& tokens) {
  json.begin_object().key("content").begin_array();
  for (const TokenLogprob& token : tokens) {
    json.begin_object();
    write_top_logprob(json, token);
    json.key("top_logprobs").begin_array();
    for (const TopLogprob& top : token.top) {
      json.begin_object();
      write_top_logprob(json, top);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array().end_object();
}

// The chosen token, then the most probable ones. Tokens that read the same count once.
void write_most_probable(JsonWriter& json, const TokenLogprob& token) {
  std::vector<std::string_view> seen{token.token};
  json.begin_object().any_key(token.token).number(finite(token.logprob));
  for (const TopLogprob& top : token.top) {
    if (std::ranges::find(seen, top.token) != seen.end()) continue;
    json.any_key(seen.emplace_back(top.token)).number(finite(top.logprob));
  }
  json.end_object();
}

void write_completion_logprobs(JsonWriter& json, const CompletionLogprobs& logprobs) {
  const auto is_unpredicted = [&](const TokenLogprob& token) {
    return logprobs.starts_prompt && &token == logprobs.tokens.data();
  };
  json.begin_object().key("text_offset").begin_array();
  std::int64_t offset = logprobs.first_offset;
  for (const TokenLogprob& token : logprobs.tokens) {
    json.integer(offset);
    offset += characters(token.token);
  }
  json.end_array().key("token_logprobs").begin_array();
  for (const TokenLogprob& token : logprobs.tokens) {
    is_unpredicted(token) ? json.null() : json.number(finite(token.logprob));
  }
  json.end_array().key("tokens").begin_array();
  for (const TokenLogprob& token : logprobs.tokens) json.string(token.token);
  json.end_array().key("top_logprobs").begin_array();
  for (const TokenLogprob& token : logprobs.tokens) {
    if (is_unpredicted(token)) {
      json.null();
      continue;
    }
    write_most_probable(json, token);
  }
  json.end_array().end_object();
}

// By position a map from token ids; of the first token, which nothing predicted, null.
void write_prompt_logprobs(JsonWriter& json, const std::vector<TokenLogprob>& tokens) {
  const auto write_one = [&json](const TopLogprob& entry, int rank) {
    json.any_key(std::to_string(entry.id)).begin_object();
    json.key("logprob").number(finite(entry.logprob)).key("rank").integer(rank);
    const bool is_named_by_id = entry.token.starts_with("token_id:");
    json.key("decoded_token").string(is_named_by_id ? entry.bytes : entry.token).end_object();
  };
  json.begin_array().null();
  for (const TokenLogprob& token : tokens) {
    json.begin_object();
    write_one(token, token.rank);
    int rank = 0;
    for (const TopLogprob& top : token.top) {
      ++rank;
      if (top.id != token.id) write_one(top, rank);
    }
    json.end_object();
  }
  json.end_array();
}

void write_head(JsonWriter& json, std::string_view id, std::string_view object,
                std::int64_t created, std::string_view model) {
  json.begin_object().key("id").string(id).key("object").string(object);
  json.key("created").integer(created).key("model").string(model);
}

void write_fingerprint(JsonWriter& json, const std::string& fingerprint) {
  json.key("service_tier").null().key("system_fingerprint");
  fingerprint.empty() ? json.null() : json.string(fingerprint);
}

void write_tail(JsonWriter& json, const Usage& usage, const std::string& transfer_params) {
  json.key("usage");
  write_usage(json, usage);
  json.key("kv_transfer_params").raw(transfer_params.empty() ? "null" : transfer_params);
  json.end_object();
}

void write_ids(JsonWriter& json, std::string_view key,
               const std::optional<std::vector<TokenId>>& ids) {
  json.key(key);
  ids ? json.ids(*ids) : json.null();
}

void write_prompt_logprobs(JsonWriter& json,
                           const std::optional<std::vector<TokenLogprob>>& tokens) {
  tokens ? write_prompt_logprobs(json, *tokens) : void(json.null());
}

void write_choice(JsonWriter& json, const ChatChoice& choice) {
  json.begin_object().key("index").integer(choice.index);
  json.key("message").begin_object().key("role").string("assistant").key("content");
  choice.content ? json.string(*choice.content) : json.null();
  json.key("refusal").null().key("annotations").null().key("audio").null();
  json.key("function_call").null();
  for (const std::string_view name : {"reasoning", "reasoning_content"}) {
    json.key(name);
    choice.reasoning ? json.string(*choice.reasoning) : json.null();
  }
  json.key("tool_calls");
  write_tool_calls(json, choice.tool_calls);
  json.end_object().key("logprobs");
  if (choice.logprobs) {
    write_chat_logprobs(json, *choice.logprobs);
  } else {
    json.null();
  }
  json.key("finish_reason").string(choice.finish_reason);
  json.key("stop_reason").raw(choice.stop_reason);
  write_ids(json, "token_ids", choice.token_ids);
  json.end_object();
}

void write_choice(JsonWriter& json, const CompletionChoice& choice) {
  json.begin_object().key("index").integer(choice.index).key("text").string(choice.text);
  json.key("logprobs");
  if (choice.logprobs) {
    write_completion_logprobs(json, *choice.logprobs);
  } else {
    json.null();
  }
  json.key("finish_reason").string(choice.finish_reason);
  json.key("stop_reason").raw(choice.stop_reason);
  write_ids(json, "token_ids", choice.token_ids);
  write_ids(json, "prompt_token_ids", choice.prompt_token_ids);
  write_prompt_logprobs(json.key("prompt_logprobs"), choice.prompt_logprobs);
  json.end_object();
}

void write_engine(JsonWriter& json, const EngineCard& engine) {
  json.begin_object().key("engine").integer(engine.engine).key("device").string(engine.device);
  json.key("dtype").string(engine.dtype).key("kv_cache_dtype").string(engine.kv_cache_dtype);
  json.key("max_model_len").integer(engine.max_model_len);
  json.key("block_size").integer(engine.block_size);
  json.key("num_gpu_blocks").integer(engine.num_gpu_blocks);
  json.key("kv_cache_size_tokens").integer(engine.kv_cache_size_tokens);
  json.key("kv_groups").begin_array();
  for (const EngineCard::KvGroup& group : engine.kv_groups) {
    json.begin_object().key("kind").string(group.kind);
    json.key("block_size").integer(group.block_size);
    json.key("kernel_block_size").integer(group.kernel_block_size);
    json.key("page_bytes").integer(group.page_bytes);
    json.key("layers").integer(group.layers).end_object();
  }
  json.end_array().key("memory").begin_array();
  for (const EngineCard::MemoryUse& use : engine.memory) {
    json.begin_object().key("purpose").string(use.purpose);
    json.key("planned_bytes").integer(use.planned_bytes);
    json.key("allocated_bytes").integer(use.allocated_bytes);
    json.key("pinned_bytes").integer(use.pinned_bytes).end_object();
  }
  json.end_array().end_object();
}

void write_card(JsonWriter& json, const ModelCard& card) {
  json.begin_object().key("id").string(card.id).key("object").string("model");
  json.key("created").integer(card.created).key("owned_by").string("quire");
  json.key("root").string(card.root).key("parent").null();
  json.key("max_model_len").integer(card.max_model_len).key("permission").begin_array();
  json.begin_object().key("id").string("modelperm-" + card.id);
  json.key("object").string("model_permission").key("created").integer(card.created);
  json.key("allow_create_engine").boolean(false).key("allow_sampling").boolean(true);
  json.key("allow_logprobs").boolean(true).key("allow_search_indices").boolean(false);
  json.key("allow_view").boolean(true).key("allow_fine_tuning").boolean(false);
  json.key("organization").string("*").key("group").null().key("is_blocking").boolean(false);
  json.end_object().end_array().key("engines").begin_array();
  for (const EngineCard& engine : card.engines) write_engine(json, engine);
  json.end_array().end_object();
}

}  // namespace

namespace {
constexpr std::size_t kUsualReply = 1024;  // bytes, beside long answers
}

std::string to_json(const ChatCompletionResponse& response) {
  std::string out;
  out.reserve(kUsualReply);
  JsonWriter json(out);
  write_head(json, response.id, "chat.completion", response.created, response.model);
  json.key("choices").begin_array();
  for (const ChatChoice& choice : response.choices) write_choice(json, choice);
  json.end_array();
  write_fingerprint(json, response.system_fingerprint);
  write_prompt_logprobs(json.key("prompt_logprobs"), response.prompt_logprobs);
  write_ids(json, "prompt_token_ids", response.prompt_token_ids);
  write_tail(json, response.usage, response.kv_transfer_params);
  return out;
}

std::string to_json(const CompletionResponse& response) {
  std::string out;
  out.reserve(kUsualReply);
  JsonWriter json(out);
  write_head(json, response.id, "text_completion", response.created, response.model);
  json.key("choices").begin_array();
  for (const CompletionChoice& choice : response.choices) write_choice(json, choice);
  json.end_array();
  write_fingerprint(json, response.system_fingerprint);
  write_tail(json, response.usage, response.kv_transfer_params);
  return out;
}

std::string to_json(const std::vector<ModelCard>& models) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("object").string("list").key("data").begin_array();
  for (const ModelCard& card : models) write_card(json, card);
  json.end_array().end_object();
  return out;
}

std::string to_json(const ModelCard& model) {
  std::string out;
  JsonWriter json(out);
  write_card(json, model);
  return out;
}

std::string to_json(const TokenizeResponse& response) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("count").integer(static_cast<std::int64_t>(response.tokens.size()));
  json.key("max_model_len").integer(response.max_model_len).key("tokens").ids(response.tokens);
  json.key("token_strs");
  if (response.token_strs) {
    json.begin_array();
    for (const std::string& text : *response.token_strs) json.string(text);
    json.end_array();
  } else {
    json.null();
  }
  json.end_object();
  return out;
}

std::string detokenize_json(std::string_view prompt) {
  std::string out;
  JsonWriter(out).begin_object().key("prompt").string(prompt).end_object();
  return out;
}

std::string error_json(std::string_view message, std::string_view type, std::string_view param,
                       int code) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("error").begin_object().key("message").string(message);
  json.key("type").string(type).key("param");
  param.empty() ? json.null() : json.string(param);
  json.key("code").integer(code).end_object().end_object();
  return out;
}

void append_usage(std::string& out, const Usage& usage) {
  JsonWriter json(out);
  write_usage(json, usage);
}

void append_chat_logprobs(std::string& out, const std::vector<TokenLogprob>& tokens) {
  JsonWriter json(out);
  write_chat_logprobs(json, tokens);
}

void append_prompt_logprobs(std::string& out,
                            const std::optional<std::vector<TokenLogprob>>& tokens) {
  JsonWriter json(out);
  write_prompt_logprobs(json, tokens);
}

std::int64_t end_offset(const CompletionLogprobs& logprobs) {
  std::int64_t offset = logprobs.first_offset;
  for (const TokenLogprob& token : logprobs.tokens) offset += characters(token.token);
  return offset;
}

void append_completion_logprobs(std::string& out, const CompletionLogprobs& logprobs) {
  JsonWriter json(out);
  write_completion_logprobs(json, logprobs);
}

}  // namespace quire::openapi
