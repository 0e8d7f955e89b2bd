#pragma once
// What of a request's and an answer's head crosses the proxy, and which requests do not.

#include "net/http_client.h"
#include "proxy/connection.h"

namespace quire::proxy {

// What goes on to a server: who asks, and under which name.
net::Request request_to(const net::Url& server, const IncomingRequest& request,
                        const std::string& body);

Headers handed_back(const net::Response& answer);

// A target that is no path would be read as something else behind the server's own.
bool is_target(const IncomingRequest& request);

// What says something of one server, or does something to one, and not of those that stand behind
// the proxy: metrics, load, /debug, the prefix cache.
bool is_of_one_server(std::string_view target);

}  // namespace quire::proxy
