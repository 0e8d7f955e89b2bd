#include "jinja/values/strftime.h"

#include <cstdio>

namespace quire::jinja {
namespace {

// One directive by the C library; names and numbers all fit.
std::string directive(std::string_view spec, const std::tm& time) {
  char buffer[256];
  const std::string format(spec);
  return std::string(buffer, std::strftime(buffer, sizeof buffer, format.c_str(), &time));
}

}  // namespace

std::string format_time(std::string_view format, const std::tm& time) {
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out.push_back(format[i]);
      continue;
    }
    std::size_t length = 2;
    const bool has_flag = std::string_view("-_0^#EO").find(format[i + 1]) != std::string_view::npos;
    if (has_flag && i + 2 < format.size()) ++length;
    const std::string_view spec = format.substr(i, length);
    const char c = spec.back();
    if (c == 'f') {
      out += "000000";  // microseconds, which the time does not have
    } else if (c == 'z' || c == 'Z') {
      // a time without a zone
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      out += spec;
    } else {
      out += directive(spec, time);
    }
    i += length - 1;
  }
  return out;
}

}  // namespace quire::jinja
