#include "server/page/page.h"

#include <algorithm>
#include <array>
#include <boost/asio/awaitable.hpp>

#include "server/http/error_reply.h"
#include "server/page/files.h"

namespace quire {

namespace {

constexpr std::string_view kFolder = "/ui/";

// Nothing but the page's own files runs, no other page may show it, and a text that a model wrote can
// load nothing.
constexpr std::string_view kHeaders =
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "X-Frame-Options: DENY\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cross-Origin-Opener-Policy: same-origin\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n"
    "Cache-Control: no-cache\r\n"
    "Vary: Accept\r\n";

std::string_view type_of(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  return "text/javascript; charset=utf-8";
}

Reply reply_with(const PageFile& file) {
  Reply reply{.body = std::string(file.text), .content_type = type_of(file.name)};
  reply.more_headers = kHeaders;
  return reply;
}

const PageFile* find_file(std::string_view name) {
  const auto files = page_files();
  const auto found = std::ranges::find(files, name, &PageFile::name);
  return found == files.end() ? nullptr : &*found;
}

}  // namespace

bool wants_page(const HttpRequest& request) {
  return request.accept.find("text/html") != std::string::npos;
}

awaitable<void> get_page(Exchange& exchange, AppState&) {
  co_await exchange.reply(reply_with(*find_file("index.html")));
}

awaitable<void> get_docs(Exchange& exchange, AppState&) {
  co_await exchange.reply(reply_with(*find_file("docs.html")));
}

awaitable<void> get_page_file(Exchange& exchange, AppState&) {
  const std::string_view path = exchange.request().path;
  const PageFile* const file = find_file(path.substr(std::min(path.size(), kFolder.size())));
  Reply reply = file == nullptr ? plain_error_reply(404, "Not Found: the page has no such file")
                                : reply_with(*file);  // named: g++ 12 destroys a conditional twice
  co_await exchange.reply(std::move(reply));
}

}  // namespace quire
