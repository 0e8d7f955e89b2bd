#pragma once
// What becomes of a client's request body on its way: for the server that prefills, and for the one
// that goes on. Pure functions.

#include <optional>
#include <string>
#include <string_view>

namespace quire::proxy {

// Empty: this request is not shared by two servers (it is no generation, wants several choices or
// log-probabilities of its prompt, or says itself where its prompt is kept).
std::optional<std::string> body_for_prefill(std::string_view target, const std::string& body);

// The object in a prefill's answer; empty: it kept nothing.
std::string kept_params(const std::string& answer);

std::string body_for_decode(const std::string& body, const std::string& params);

}  // namespace quire::proxy
