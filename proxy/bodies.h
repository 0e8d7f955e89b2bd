#pragma once
// What becomes of a client's request body on its way: for the server that prefills, and for the one
// that goes on. Pure functions.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire::proxy {

// Empty: this request is not shared by two servers (it is no generation, wants several choices or
// log-probabilities of its prompt, or says itself where its prompt is kept).
// With a name it is sent, by that name, while it is computed; else kept until it is fetched.
std::optional<std::string> body_for_prefill(std::string_view target, const std::string& body,
                                            const std::string& push_name = {});

bool is_answer(const std::string& body);  // that this reads: a JSON object

// The object in a prefill's answer; empty: it kept nothing.
std::string kept_params(const std::string& answer);

// Where that answer says that others fetch from, if prefills can be pushed from there: by a Quire
// server whose plane is local, or by one that pushes over NIXL, which is asked for by its name,
// too.
struct KvPlace {
  std::string host;
  std::int64_t port = 0;
  std::string engine = {};  // over NIXL
  std::int64_t ranks = 1;
};
inline constexpr std::string_view kPushName =
    "proxy-";  // what names that the proxy makes up begin with
std::optional<KvPlace> kept_place(const std::string& answer);

// What the server that goes on is told of a prefill that was asked for by that name.
std::string pushed_params(const std::string& push_name, const KvPlace& place);

std::string body_for_decode(const std::string& body, const std::string& params);

}  // namespace quire::proxy
