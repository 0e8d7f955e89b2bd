// Bodies of requests: parsed, or refused with a sentence that names what is wrong.

#include <simdjson.h>

#include "openapi/dto_json.h"
#include "openapi/generate.h"
#include "openapi/pooling.h"
#include "openapi/responses.h"
#include "tests/fuzz/targets.h"

namespace quire::fuzz {

namespace {

template <class T>
void hold(const Result<T>& parsed) {
  if (parsed) return;
  const Error& error = parsed.error();
  promise(!error.detail.empty(), "a refusal says why");
  promise(error.detail.size() < 4096, "a refusal is a sentence");
  promise(simdjson::validate_utf8(error.detail), "a refusal is UTF-8");
  promise(error.code == ErrorCode::invalid_argument || error.code == ErrorCode::unsupported,
          "a body is the client's fault");
}

}  // namespace

void json_bodies(std::string_view bytes) {
  if (bytes.size() < 2) return;  // a body that is not there is no JSON text
  const auto endpoint = static_cast<unsigned char>(bytes.front());
  // A copy of exactly its size, so that reading beyond it shows under a sanitizer.
  const std::vector<char> copy(bytes.begin() + 1, bytes.end());
  const std::string_view body(copy.data(), copy.size());
  switch (endpoint % 10) {
    case 0:
      return hold(openapi::parse_chat_completion(body));
    case 1:
      return hold(openapi::parse_completion(body));
    case 2:
      return hold(openapi::parse_responses(body));
    case 3:
      return hold(openapi::parse_messages(body));
    case 4:
      return hold(openapi::parse_generate(body));
    case 5:
      return hold(openapi::parse_embeddings(body));
    case 6:
      return hold(openapi::parse_score(body));
    case 7:
      return hold(openapi::parse_rerank(body));
    case 8:
      return hold(openapi::parse_tokenize(body));
    default:
      return hold(openapi::parse_detokenize(body));
  }
}

}  // namespace quire::fuzz
