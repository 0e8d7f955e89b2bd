#include "engine/structured/schema/network_formats.h"

#include <fmt/format.h>

namespace quire::structured {
namespace {

constexpr const char* kUpTo32 = "([12]?[0-9]|3[0-2])";
constexpr const char* kUpTo128 = "([1-9]?[0-9]|1[01][0-9]|12[0-8])";

// Values of an octet of which only the first `bits` may be set.
std::string octet(int bits) {
  std::string list;
  for (int value = 0; value < 256; value += 1 << (8 - bits)) {
    list += fmt::format("{}{}", list.empty() ? "" : "|", value);
  }
  return "(" + list + ")";
}

// Numbers from `from` to 128.
std::string prefix_from(int from) {
  std::string list;
  for (int value = from; value <= 128; ++value) {
    list += fmt::format("{}{}", list.empty() ? "" : "|", value);
  }
  return "(" + list + ")";
}

}  // namespace

std::string ipv4_network(const std::string& address) {
  std::string all = address + "(/32)?";
  for (int prefix = 0; prefix < 32; ++prefix) {
    const int whole = prefix / 8;
    std::string one;
    for (int i = 0; i < 4; ++i) {
      one += i == 0 ? "" : "\\.";
      one += i < whole ? octet(8) : i == whole ? octet(prefix % 8) : "0";
    }
    all += fmt::format("|{}/{}", one, prefix);
  }
  return "(" + all + ")";
}

// Groups of 16 bits, each within the prefix, and zeros: how networks are written.
std::string ipv6_network(const std::string& address) {
  std::string all = address + "(/128)?|::/" + prefix_from(0);
  for (int groups = 1; groups < 8; ++groups) {
    all += fmt::format("|([0-9A-Fa-f]{{1,4}}:){{{}}}:/{}", groups, prefix_from(16 * groups));
  }
  return "(" + all + ")";
}

std::string ipv4_interface(const std::string& address) { return address + "(/" + kUpTo32 + ")?"; }

std::string ipv6_interface(const std::string& address) { return address + "(/" + kUpTo128 + ")?"; }

}  // namespace quire::structured
