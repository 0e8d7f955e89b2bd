#pragma once
// What a request's head must keep to beyond its grammar, so that a proxy in front and this server
// never read the same bytes differently (RFC 9112, 3.2, 5.2, 6.1, 6.3).

#include <boost/beast/http/message.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

// `raw` is the head as it came, with the empty line. What is wrong, for the client; unset: nothing.
std::optional<std::string> fault_of_head(
    std::string_view raw,
    const boost::beast::http::header<true, boost::beast::http::fields>& head);

}  // namespace quire
