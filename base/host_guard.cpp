#include "base/host_guard.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/ip/address.hpp>
#include <boost/beast/core/string.hpp>

namespace quire {

namespace {

// Without port and brackets.
std::string_view name_in(std::string_view host) {
  if (host.starts_with('[')) return host.substr(1, host.find(']') - 1);
  return host.substr(0, host.find(':'));
}

bool is_address(std::string_view name) {
  boost::system::error_code error;
  boost::asio::ip::make_address(name, error);
  return !error;
}

bool is_loopback(std::string_view host) {
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(host, error);
  return error ? boost::beast::iequals(host, "localhost") : address.is_loopback();
}

std::string name_of_machine() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace

HostGuard::HostGuard(std::string_view listens_on, bool asks_for_key,
                     std::vector<std::string> allowed)
    : guards_(!asks_for_key && is_loopback(listens_on) &&
              std::ranges::find(allowed, "*") == allowed.end()),
      names_(std::move(allowed)) {
  if (std::string machine = name_of_machine(); !machine.empty())
    names_.push_back(std::move(machine));
}

bool HostGuard::allows(std::string_view host) const {
  if (!guards_ || host.empty()) return true;  // empty: HTTP/1.0, which no browser speaks
  const std::string_view name = name_in(host);
  constexpr std::string_view kBelowLocalhost = ".localhost";  // RFC 6761
  const bool is_local_word = name.find('.') == name.npos;
  if (is_local_word || name.ends_with(kBelowLocalhost) || is_address(name)) return true;
  return std::ranges::any_of(
      names_, [name](const std::string& known) { return boost::beast::iequals(name, known); });
}

}  // namespace quire
