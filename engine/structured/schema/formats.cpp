#include "engine/structured/schema/formats.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "engine/structured/regex/pattern.h"
#include "engine/structured/schema/network_formats.h"

namespace quire::structured {
namespace {

// RFC 3339. The leap second and the day of a month by the month; February has 29 days in leap
// years. Without the year 0, which most who read dates do not have.
std::string date() {
  const std::string leap =
      "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)";
  const std::string year = "([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])";
  return "(" + year +
         "-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"
         "02-(0[1-9]|1[0-9]|2[0-8]))|" +
         leap + "-02-29)";
}

// Nanoseconds are the most that readers keep, and weak models write digits without end.
std::string fraction() { return "(\\.[0-9]{1,9})?"; }

std::string time() {
  return "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]" + fraction() +
         "([zZ]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
}

// hh:mm:60, which is 23:59:60 in UTC. The hours and the minutes that fit each other are two
// patterns, of which both must hold.
struct LeapSecond {
  std::string first, second;
};

std::vector<LeapSecond> leap_seconds() {
  const std::string any = "[0-9]{2}", seconds = ":60" + fraction();
  const auto either = [](std::string& list, const std::string& one) {
    list += (list.empty() ? "" : "|") + one;
  };
  std::string west_hours, west_minutes, east_hours, east_minutes, whole_hours;
  for (int h = 0; h < 24; ++h) {
    const std::string before = fmt::format("{:02}:{}{}", h, any, seconds);
    either(west_hours, fmt::format("{}-{:02}:{}", before, 23 - h, any));
    either(east_hours, fmt::format("{}\\+{:02}:{}", before, h, any));
    either(whole_hours, fmt::format("{:02}:59{}\\+{:02}:00", h, seconds, (h + 1) % 24));
  }
  for (int m = 0; m < 60; ++m) {
    const std::string before = fmt::format("{}:{:02}{}", any, m, seconds);
    either(west_minutes, fmt::format("{}-{}:{:02}", before, any, 59 - m));
    if (m < 59) either(east_minutes, fmt::format("{}\\+{}:{:02}", before, any, m + 1));
  }
  return {{west_hours, west_minutes},
          {east_hours, east_minutes},
          {whole_hours + "|23:59" + seconds + "[zZ]", ""}};
}

std::string hostname() {
  const std::string label = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
  return label + "(\\." + label + ")*";
}

std::string ipv4() {
  const std::string part = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
  return part + "(\\." + part + "){3}";
}

// RFC 4291: at most one ::. IPv4 at the end is taken after ::, ::ffff:, ::ffff:0: and up to four
// groups with ::, which is how it is used.
std::string ipv6() {
  const std::string h = "[0-9A-Fa-f]{1,4}";
  std::string all = "(" + h + ":){7}" + h;
  for (int before = 0; before <= 7; ++before) {
    const std::string head = before == 0 ? ":" : "(" + h + ":){" + std::to_string(before) + "}";
    all += "|" + head + (before == 7 ? ":" : "(:" + h + "){1," + std::to_string(7 - before) + "}");
    if (before < 7) all += "|" + head + ":";
  }
  return "(" + all + "|::([fF]{4}(:0{1,4})?:)?" + ipv4() + "|(" + h + ":){1,4}:" + ipv4() + ")";
}

std::string email(const std::string& extra) {
  const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~" + extra + "-]+";
  const std::string quoted = "\"([ !#-\\[\\]-~" + extra + "]|\\\\[ -~])*\"";
  const std::string label =
      "[A-Za-z0-9" + extra + "]([A-Za-z0-9" + extra + "-]*[A-Za-z0-9" + extra + "])?";
  return "(" + atom + "(\\." + atom + ")*|" + quoted + ")@(" + label + "(\\." + label + ")*|\\[(" +
         ipv4() + "|IPv6:" + ipv6() + ")\\])";
}

// RFC 3986 (and 3987 with `extra`): the parts that uri and uri-reference are made of.
struct UriParts {
  std::string authority, path, path_absolute, path_rootless, path_noscheme, tail;

  explicit UriParts(const std::string& extra) {
    const std::string plain = "A-Za-z0-9._~!$&'()*+,;=" + extra + "\\-";
    const std::string escape = "%[0-9A-Fa-f]{2}";
    const std::string pchar = "([" + plain + ":@]|" + escape + ")";
    const std::string host = "(\\[(" + ipv6() +
                             "|v[0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\\]|([" + plain + "]|" +
                             escape + ")*)";
    authority = "(([" + plain + ":]|" + escape + ")*@)?" + host + "(:[0-9]*)?";
    path = "(/" + pchar + "*)*";
    path_rootless = pchar + "+" + path;
    path_absolute = "/(" + path_rootless + ")?";
    path_noscheme = "([" + plain + "@]|" + escape + ")+" + path;
    tail = "(\\?([" + plain + ":@/?]|" + escape + ")*)?(#([" + plain + ":@/?]|" + escape + ")*)?";
  }

  std::string absolute() const {
    return "[A-Za-z][A-Za-z0-9+.-]*:(//" + authority + path + "|" + path_absolute + "|" +
           path_rootless + "|)" + tail;
  }
  // With several hosts, as databases have them.
  std::string several_hosts() const {
    return "[A-Za-z][A-Za-z0-9+.-]*://" + authority + "(," + authority + ")*" + path + tail;
  }
  std::string relative() const {
    return "(//" + authority + path + "|" + path_absolute + "|" + path_noscheme + "|)" + tail;
  }
};

constexpr const char* kBeyondAscii =
    "\\u00a0-\\ud7ff\\uf900-\\ufdcf\\ufdf0-\\uffef\\u{10000}-\\u{dffff}";

std::string uri_template() {
  const std::string name = "([A-Za-z0-9_]|%[0-9A-Fa-f]{2})(\\.?([A-Za-z0-9_]|%[0-9A-Fa-f]{2}))*";
  const std::string variable = name + "(:[1-9][0-9]{0,3}|\\*)?";
  return "([!#$&(-;=?-\\[\\]_a-z~\\u00a0-\\ud7ff]|%[0-9A-Fa-f]{2}|\\{[+#./;?&=,!@|]?" + variable +
         "(," + variable + ")*\\})*";
}

// Numbers of up to six digits: larger ones are no durations for those who read them.
std::string duration() {
  const std::string n = "[0-9]{1,6}";
  const std::string time = fmt::format("T({0}H({0}M({0}S)?)?|{0}M({0}S)?|{0}S)", n);
  return fmt::format("P({0}W|{1}|({0}Y({0}M({0}D)?)?|{0}M({0}D)?|{0}D)({1})?)", n, time);
}

// Of the regular expressions of ECMAScript those whose groups are nested up to three times, without
// references.
std::string regular_expression() {
  const std::string class_char = "[^\\\\\\]\\[^-]|\\\\[dDwWsStnrfv\\\\\\]\\[^.*+?(){}|/-]";
  std::string ranges;
  for (const std::string_view part : {"09", "AZ", "az"}) {
    for (char from = part[0]; from <= part[1]; ++from) {
      ranges += fmt::format("|{}-[{}-{}]", from, from, part[1]);
    }
  }
  const std::string quantifier = "([*+?]|\\{[0-9]{1,2}(,|,[1-9][0-9]{2})?\\})?\\??";
  const std::string single =
      "[^\\\\\\[\\](){}*+?|^$]|\\\\[dDwWsStnrfv\\\\.*+?()\\[\\]{}|/^$-]|"
      "\\[\\^?((" +
      class_char + ")" + ranges + ")+\\]";
  const auto level = [&](const std::string& atom) {
    const std::string run = "(\\^|\\$|\\\\b|(" + atom + ")(" + quantifier + "))*";
    return run + "(\\|" + run + ")*";
  };
  std::string all = level(single);
  for (int i = 0; i < 3; ++i) all = level(single + "|\\((\\?:)?" + all + "\\)");
  return all;
}

// Those of IP addresses and networks.
std::optional<std::string> network_pattern(std::string_view format) {
  if (format == "ipv4") return ipv4();
  if (format == "ipv6") return ipv6();
  if (format == "ipvanyaddress") return "(" + ipv4() + "|" + ipv6() + ")";
  if (format == "ipv4network") return ipv4_network(ipv4());
  if (format == "ipv6network") return ipv6_network(ipv6());
  if (format == "ipvanynetwork")
    return "(" + ipv4_network(ipv4()) + "|" + ipv6_network(ipv6()) + ")";
  if (format == "ipv4interface") return ipv4_interface(ipv4());
  if (format == "ipv6interface") return ipv6_interface(ipv6());
  if (format == "ipvanyinterface")
    return "(" + ipv4_interface(ipv4()) + "|" + ipv6_interface(ipv6()) + ")";
  return std::nullopt;
}

std::optional<std::string> format_pattern(std::string_view format) {
  const std::string pointer = "(/([^/~]|~[01])*)*";
  if (format == "date") return date();
  if (format == "time") return time();
  if (format == "date-time") return date() + "[tT]" + time();
  if (format == "duration") return duration();
  if (format == "email") return email("");
  if (format == "name-email")
    return "([A-Za-z][A-Za-z .'-]* <" + email("") + ">|" + email("") + ")";
  if (format == "idn-email") return email("\\u0080-\\uff1f\\uff21-\\u{10ffff}");
  if (format == "hostname") return hostname();
  if (format.starts_with("ipv")) return network_pattern(format);
  if (format == "regex") return regular_expression();
  if (format == "base64url")
    return "([A-Za-z0-9_-]{4})*([A-Za-z0-9_-]{2}(==)?|[A-Za-z0-9_-]{3}=?)?";
  if (format == "uuid") return "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}";
  if (format.size() == 5 && format.starts_with("uuid") && format[4] >= '1' && format[4] <= '8') {
    return fmt::format(
        "[0-9A-Fa-f]{{8}}-[0-9A-Fa-f]{{4}}-{}[0-9A-Fa-f]{{3}}-[89abAB][0-9A-Fa-f]{{3}}-"
        "[0-9A-Fa-f]{{12}}",
        format[4]);
  }
  if (format == "byte" || format == "base64") {
    return "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?";
  }
  // How it is shown or what it is for: any text is one.
  for (const std::string_view any : {"password", "binary", "path", "file-path", "directory-path"}) {
    if (format == any) return "(?s).*";
  }
  if (format == "uri") return UriParts("").absolute();
  if (format == "multi-host-uri") return UriParts("").several_hosts();
  if (format == "uri-reference")
    return "(" + UriParts("").absolute() + "|" + UriParts("").relative() + ")";
  if (format == "iri") return UriParts(kBeyondAscii).absolute();
  if (format == "iri-reference") {
    const UriParts parts(kBeyondAscii);
    return "(" + parts.absolute() + "|" + parts.relative() + ")";
  }
  if (format == "uri-template") return uri_template();
  if (format == "json-pointer") return pointer;
  if (format == "relative-json-pointer") return "(0|[1-9][0-9]*)(#|" + pointer + ")";
  return std::nullopt;
}

struct NamedNumbers {
  std::string_view name;
  NumberFormat numbers;
};

constexpr NamedNumbers kNumberFormats[] = {
    {"int8", {"-128", "127", true}},
    {"int16", {"-32768", "32767", true}},
    {"int32", {"-2147483648", "2147483647", true}},
    {"int64", {"-9223372036854775808", "9223372036854775807", true}},
    {"int", {"-9223372036854775808", "9223372036854775807", true}},
    {"uint8", {"0", "255", true}},
    {"uint16", {"0", "65535", true}},
    {"uint32", {"0", "4294967295", true}},
    {"uint64", {"0", "18446744073709551615", true}},
    {"uint", {"0", "18446744073709551615", true}},
    {"float", {}},
    {"double", {}},
};

}  // namespace

std::optional<NumberFormat> number_format(std::string_view format) {
  for (const NamedNumbers& one : kNumberFormats) {
    if (one.name == format) return one.numbers;
  }
  return std::nullopt;
}

bool is_text_format(std::string_view format) { return format_pattern(format).has_value(); }

bool is_local_time(RegexStore& store, std::string_view format, RegexId format_regex,
                   RegexId pattern) {
  const bool has_offset = format == "time" || format == "date-time";
  return has_offset && !store.alive(store.all_of({pattern, format_regex}));
}

std::optional<RegexId> format_regex(RegexStore& store, std::string_view format, Spelling spelling) {
  const auto whole = [&](const std::string& pattern) {
    return parse_pattern(store, pattern, PatternUse::whole, spelling);
  };
  const auto pattern = format_pattern(format);
  if (!pattern) return std::nullopt;
  RegexId id = whole(*pattern);
  if (format == "hostname") {
    constexpr std::uint32_t kLongest = 253;
    const RegexId any = chars_regex(store, CharSet::all(), spelling);
    id = store.all_of({id, store.repeat(any, 0, kLongest)});
  }
  if (format == "time" || format == "date-time") {
    const RegexId day = format == "time" ? kEmpty : whole(date() + "[tT]");
    std::vector<RegexId> all{id};
    for (const LeapSecond& leap : leap_seconds()) {
      const RegexId first = whole(leap.first);
      all.push_back(store.concat(
          day, leap.second.empty() ? first : store.all_of({first, whole(leap.second)})));
    }
    id = store.any_of(std::move(all));
  }
  return id;
}

}  // namespace quire::structured
