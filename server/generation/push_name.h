#pragma once
// A prefill that another server waits to be sent, or keeps: who refuses it here has to say so,
// whatever else is wrong with the request.

#include <string>
#include <string_view>

namespace quire {

// The name in a body's kv_transfer_params; empty: it asks for no such prefill, or not in a form
// that can be read. Nothing is checked that the engine checks.
std::string push_name_of(std::string_view body);
// The same where Mooncake carries it.
std::string mooncake_name_of(std::string_view body);

// What vLLM calls the first prompt of a request at that path, by which both sides of a push over
// NIXL know it. `id`: X-Request-Id, else what the body says, else made up.
std::string vllm_request_name(std::string_view path, std::string_view id);
// That of a body that asks for a prefill over NIXL; empty: it does not, or nobody else knows its
// name. `header_id`: X-Request-Id, empty where there is none.
std::string nixl_push_name_of(std::string_view path, std::string_view header_id,
                              std::string_view body);

// Of a body's kv_transfer_params what whoever keeps the prefill has to be told by; empty: it
// fetches nothing, or the body cannot be read.
std::string fetch_params_of(std::string_view body);

}  // namespace quire
