#include "server/http/head_rules.h"

#include <boost/beast/core/string.hpp>

namespace quire {

namespace {

namespace http = boost::beast::http;
using Head = http::header<true, http::fields>;

// A line that goes on in the next: readers disagree about where such a field ends.
bool is_folded(std::string_view raw) {
  for (std::size_t at = raw.find('\n'); at != raw.npos; at = raw.find('\n', at + 1)) {
    if (at + 1 < raw.size() && (raw[at + 1] == ' ' || raw[at + 1] == '\t')) return true;
  }
  return false;
}

// The body has an end that can be known only with no coding at all or with chunked alone.
std::optional<std::string> fault_of_transfer_encoding(const Head& head) {
  const auto count = head.count(http::field::transfer_encoding);
  if (count == 0) return std::nullopt;
  if (head.version() < 11) return "Transfer-Encoding needs HTTP/1.1";
  if (count > 1 || !boost::beast::iequals(head[http::field::transfer_encoding], "chunked")) {
    return "Transfer-Encoding must be \"chunked\" and nothing else";
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> fault_of_head(std::string_view raw, const Head& head) {
  if (is_folded(raw)) return "A header field must not continue on a second line";
  const auto hosts = head.count(http::field::host);
  if (hosts > 1) return "The request has more than one Host header";
  if (hosts == 0 && head.version() >= 11) return "The request has no Host header";
  if (head.count(http::field::authorization) > 1) {
    return "The request has more than one Authorization header";
  }
  return fault_of_transfer_encoding(head);
}

}  // namespace quire
