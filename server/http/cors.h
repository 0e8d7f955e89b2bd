#pragma once
// Which web pages of other origins may use the server from a browser. By default none.

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quire {

struct CorsConfig {
  std::vector<std::string> origins;  // https://host[:port], or * for all; empty: closed
  std::vector<std::string> methods = {"GET", "POST", "OPTIONS"};
  std::vector<std::string> headers = {"*", "Authorization"};  // * does not stand for this one
  bool credentials = false;                                   // cookies; only for origins by name
};

// What contradicts itself, by flag.
Result<void> validate(const CorsConfig& config);

// Whether a page of this origin may look at replies.
bool allows_origin(const CorsConfig& config, std::string_view origin);

// Header lines for a reply to this origin; empty where it may not look.
std::string cors_headers(const CorsConfig& config, std::string_view origin, bool is_preflight);

}  // namespace quire
