#pragma once
// ErrorCode → HTTP status and JSON body: the one table.

#include <string>

#include "base/error.h"
#include "server/http/exchange.h"

namespace quire {

// A request that the server would not serve.
Reply error_reply(const Error& error);
// A request that is malformed: the same with HTTP's own words as its type, as vLLM has it.
Reply malformed_reply(const Error& error);
// The body alone: what a stream that has begun sends as an event.
std::string error_body(const Error& error);
// "Not Found" of 404, as RFC 9110 has it.
std::string_view reason_phrase(int status);
// For errors below HTTP's requests: a status and a sentence.
Reply plain_error_reply(int status, const std::string& message);

}  // namespace quire
