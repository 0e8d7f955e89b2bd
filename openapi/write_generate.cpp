#include <algorithm>

#include "openapi/dto_json.h"
#include "openapi/generate.h"
#include "openapi/json_writer.h"

namespace quire::openapi {

namespace {

void write_candidate(JsonWriter& json, const TopLogprob& token, int rank) {
  json.key("token_id").integer(token.id);
  json.key("logprob").number(std::max(token.logprob, kLowestLogprob)).key("rank").integer(rank);
}

// The token that was drawn first, then the likeliest others: vLLM's GenerateLogProbs.
void write_logprobs(JsonWriter& json, const std::vector<TokenLogprob>& tokens) {
  json.begin_object().key("content").begin_array();
  for (const TokenLogprob& token : tokens) {
    json.begin_object();
    write_candidate(json, token, token.rank);
    json.key("top_logprobs").begin_array().begin_object();
    write_candidate(json, token, token.rank);
    json.end_object();
    int rank = 0;
    for (const TopLogprob& top : token.top) {
      ++rank;
      if (top.id == token.id) continue;
      json.begin_object();
      write_candidate(json, top, rank);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array().end_object();
}

}  // namespace

void append_generated(std::string& out, const GeneratedPart& part) {
  JsonWriter json(out);
  json.begin_object().key("index").integer(part.index).key("token_ids").ids(part.token_ids);
  if (part.text != nullptr) json.key("text").string(*part.text);
  json.key("logprobs");
  if (part.logprobs == nullptr) {
    json.null();
  } else if (part.text != nullptr) {
    std::string chat;
    append_chat_logprobs(chat, *part.logprobs);
    json.raw(chat);
  } else {
    write_logprobs(json, *part.logprobs);
  }
  json.key("finish_reason");
  part.finish_reason.empty() ? json.null() : json.string(part.finish_reason);
  json.key("stop_reason").raw(part.stop_reason).end_object();
}

std::string generate_json(const CompletionResponse& response, const GenerateRequest& request) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("request_id").string(response.id).key("model").string(response.model);
  json.key("created").integer(response.created);
  json.key("output_mode").string(request.wants_text ? "text" : "tokens");
  json.key("choices").begin_array();
  for (const CompletionChoice& choice : response.choices) {
    std::string one;
    append_generated(one, {.index = choice.index,
                           .token_ids = *choice.token_ids,
                           .logprobs = choice.logprobs ? &choice.logprobs->tokens : nullptr,
                           .text = request.wants_text ? &choice.text : nullptr,
                           .finish_reason = choice.finish_reason,
                           .stop_reason = choice.stop_reason});
    json.raw(one);
  }
  json.end_array().key("usage");
  std::string usage;
  append_usage(usage, response.usage);
  json.raw(usage);
  const CompletionChoice& first = response.choices.front();
  json.key("prompt_logprobs");
  std::string prompt;
  append_prompt_logprobs(prompt, first.prompt_logprobs);
  json.raw(prompt).key("prompt_token_ids");
  request.return_token_ids ? json.ids(*first.prompt_token_ids) : json.null();
  json.key("kv_transfer_params");
  json.raw(response.kv_transfer_params.empty() ? "null" : response.kv_transfer_params);
  json.end_object();
  return out;
}

}  // namespace quire::openapi
