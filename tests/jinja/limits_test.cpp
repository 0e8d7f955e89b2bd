// Templates that would never end, or eat all memory or stack, end soon with an error that names the
// limit.

#include <sys/resource.h>
#include <time.h>

#include <catch2/catch.hpp>
#include <string>

#include "text/template/chat_template.h"

namespace {

using quire::ChatTemplate;
using quire::RenderResult;
using Kind = quire::TemplateError::Kind;

RenderResult render(const std::string& source) {
  try {
    return ChatTemplate::parse(source).render_context({});
  } catch (const quire::TemplateFailure& failure) {
    return {{}, failure.cause()};
  }
}

std::string repeated(const std::string& part, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += part;
  return text;
}

long max_rss_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr bool kPlainBuild = true;
#else
constexpr bool kPlainBuild = false;
#endif
// Of CPU: of a tenth or so on an idle machine, where it took minutes.
constexpr double kMaxSeconds = kPlainBuild ? 10 : 60;
constexpr long kMaxGrowthKib = 400 << 10;

struct Case {
  const char* name;
  std::string source;
  Kind kind;
};

const std::string kLoop = "{% for i in range(100000) %}";
const std::string kEnd = "{% endfor %}";

std::vector<Case> cases() {
  const std::string kGrow = "{% set ns = namespace(x='aaaaaaaa') %}" + kLoop;
  return {
      {"loops in loops", kLoop + kLoop + kLoop + kEnd + kEnd + kEnd, Kind::limit},
      {"loops that print", kLoop + kLoop + "abc" + kEnd + kEnd, Kind::limit},
      {"a text that doubles", kGrow + "{% set ns.x = ns.x ~ ns.x %}" + kEnd, Kind::limit},
      {"a text that doubles by +", kGrow + "{% set ns.x = ns.x + ns.x %}" + kEnd, Kind::limit},
      {"a text that doubles by replace", kGrow + "{% set ns.x = ns.x.replace('a', 'aa') %}" + kEnd,
       Kind::limit},
      {"a text that doubles by join", kGrow + "{% set ns.x = ns.x.join([ns.x, ns.x]) %}" + kEnd,
       Kind::limit},
      {"a text that doubles by format", kGrow + "{% set ns.x = '{0}{0}'.format(ns.x) %}" + kEnd,
       Kind::limit},
      {"a text that doubles by %", kGrow + "{% set ns.x = '%s%s' % (ns.x, ns.x) %}" + kEnd,
       Kind::limit},
      {"a text that escapes grow", kGrow + "{% set ns.x = ns.x|tojson %}" + kEnd, Kind::limit},
      {"a text that grows by escapes",
       kGrow + "{% set ns.x = (ns.x ~ '&')|string|forceescape|string %}" + kEnd, Kind::limit},
      {"a list that doubles",
       "{% set ns = namespace(x=[1]) %}" + kLoop + "{% set ns.x = ns.x + ns.x %}" + kEnd,
       Kind::limit},
      {"a list that holds itself twice",
       "{% set ns = namespace(x=[1]) %}" + kLoop + "{% set ns.x = [ns.x, ns.x] %}" + kEnd,
       Kind::recursion},
      {"shared parts printed",
       "{% set ns = namespace(x=[1]) %}{% for i in range(200) %}{% set ns.x = [ns.x, ns.x] %}" +
           kEnd + "{{ ns.x }}",
       Kind::limit},
      {"shared parts compared",
       "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(200) %}{% set ns.x = [ns.x, ns.x] "
       "%}{% set ns.y = [ns.y, ns.y] %}" +
           kEnd + "{{ ns.x == ns.y }}",
       Kind::limit},
      {"shared parts as JSON",
       "{% set ns = namespace(x=[1]) %}{% for i in range(200) %}{% set ns.x = [ns.x, ns.x] %}" +
           kEnd + "{{ ns.x|tojson }}",
       Kind::limit},
      {"shared parts as a key",
       "{% set ns = namespace(x=(1,)) %}{% for i in range(200) %}{% set ns.x = (ns.x, ns.x) %}" +
           kEnd + "{{ {ns.x: 1} }}",
       Kind::limit},
      {"namespaces in namespaces",
       "{% set ns = namespace(x=1) %}" + kLoop + "{% set ns.x = namespace(a=ns.x, b=ns.x) %}" +
           kEnd + "{{ ns.x }}",
       Kind::recursion},
      {"a namespace in itself", "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
       Kind::recursion},
      {"lazy filters on lazy filters",
       "{% set ns = namespace(x=[1]) %}" + kLoop + "{% set ns.x = ns.x|map('string') %}" + kEnd +
           "{{ ns.x|list }}",
       Kind::recursion},
      {"a huge repetition", "{{ 'abc' * 1000000000 }}", Kind::limit},
      {"a huge list", "{{ [0] * 1000000000000 }}", Kind::limit},
      {"a huge width", "{{ '%1000000000d' % 5 }}", Kind::limit},
      {"a huge width in braces", "{{ '{:1000000000}'.format(5) }}", Kind::limit},
      {"a huge precision", "{{ '{:.1000000000f}'.format(0.5) }}", Kind::limit},
      {"a huge centre", "{{ 'a'.center(10000000000) }}", Kind::limit},
      {"huge tabs", "{{ '\t'.expandtabs(10000000000) }}", Kind::limit},
      {"a huge indent", "{{ 'a\nb'|indent(10000000000) }}", Kind::limit},
      {"a huge JSON indent", "{{ [1]|tojson(indent=1000000000) }}", Kind::limit},
      {"a huge batch", "{{ [1]|batch(100000000000, 'x')|list }}", Kind::limit},
      {"huge slices", "{{ [1]|slice(100000000000)|list }}", Kind::limit},
      {"a huge power", "{{ 10 ** 1000000000000 }}", Kind::value},
      {"powers of powers", kLoop + "{% set x = 9 ** 4000 // 7 ** 2000 %}" + kEnd, Kind::limit},
      {"a huge range", "{{ range(1000000000)|list }}", Kind::overflow},
      {"a macro that calls itself", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
       Kind::recursion},
      {"macros that call each other twice",
       "{% macro m(n) %}{{ m(n) }}{{ m(n) }}{% endmacro %}{{ m(1) }}", Kind::recursion},
      {"a loop that calls itself", "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
       Kind::recursion},
      {"a caller that calls",
       "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}",
       Kind::recursion},
      {"a block that shows itself", "{% block b %}{{ self.b() }}{% endblock %}", Kind::recursion},
      {"a macro with many branches",
       "{% macro m(n) %}{% if n > 0 %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ "
       "m(60) }}",
       Kind::limit},
      {"sorting over and over",
       "{% set l = range(100000)|list %}" + kLoop + "{% set x = l|sort %}" + kEnd, Kind::limit},
      {"searching over and over",
       "{% set s = 'a' * 10000000 %}" + kLoop + "{% set x = 'b' in s %}" + kEnd, Kind::limit},
      {"case over and over",
       "{% set s = 'a' * 1000000 %}" + kLoop + "{% set x = s.upper() %}" + kEnd, Kind::limit},
      {"brackets in brackets",
       "{{ " + repeated("(", 100'000) + "1" + repeated(")", 100'000) + " }}", Kind::recursion},
      {"lists in lists", "{{ " + repeated("[", 100'000) + repeated("]", 100'000) + " }}",
       Kind::recursion},
      {"sums of sums", "{{ 1" + repeated(" + 1", 100'000) + " }}", Kind::recursion},
      {"attributes of attributes", "{{ a" + repeated(".b", 100'000) + " }}", Kind::recursion},
      {"filters on filters", "{{ a" + repeated("|string", 100'000) + " }}", Kind::recursion},
      {"signs before signs", "{{ " + repeated("-", 100'000) + "1 }}", Kind::recursion},
      {"not not", "{{ " + repeated("not ", 100'000) + "1 }}", Kind::recursion},
      {"ifs in ifs", repeated("{% if 1 %}", 100'000), Kind::recursion},
      {"a huge template", std::string(5 << 20, 'a'), Kind::limit},
  };
}

}  // namespace

TEST_CASE("a template beyond a limit fails, with bounded memory", "[text][jinja][limits]") {
  const long before = max_rss_kib();
  for (const Case& c : cases()) {
    INFO(c.name);
    const RenderResult result = render(c.source);
    REQUIRE(result.error);
    INFO(result.error->message);
    CHECK(result.error->kind == c.kind);
  }
  if (kPlainBuild) CHECK(max_rss_kib() - before < kMaxGrowthKib);
}

TEST_CASE("what conversations need is far from the limits", "[text][jinja][limits]") {
  CHECK(render("{% set ns = namespace(s=0) %}{% for i in range(300) %}{% for j in range(300) %}{% "
               "set ns.s = ns.s + i * j "
               "%}{% endfor %}{% endfor %}{{ ns.s }}")
            .text == "2011522500");
  CHECK(render("{{ range(100000)|list|length }}").text == "100000");
  CHECK(render("{{ ('x' * 1000000)|length }}").text == "1000000");
  CHECK(render("{% macro m(n) %}{% if n > 0 %}{{ m(n - 1) }}{% endif %}.{% endmacro %}{{ "
               "m(60)|length }}")
            .text == "61");
  CHECK(render("{{ " + repeated("(", 60) + "1" + repeated(")", 60) + " }}").text == "1");
  CHECK(render(repeated("{% if true %}", 80) + "deep" + repeated("{% endif %}", 80)).text ==
        "deep");
  const std::string text = render("{% for i in range(2000) %}{{ 'a' * 1000 }}{% endfor %}").text;
  CHECK(text.size() == 2'000'000);
}

namespace {

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

}  // namespace

// Each of these took minutes where a search compares the part at every place anew.
TEST_CASE("searches take time that grows with the text alone", "[text][jinja][limits]") {
  const std::string kLong = "('a'*8000000)", kPart = "('a'*4000000 + 'b')";
  const std::string kMirrored = "('b' + 'a'*4000000)";
  std::string many_names, many_ifs;
  for (int i = 0; i < 100'000; ++i) many_names += "{% set a" + std::to_string(i) + "=1 %}";
  for (int i = 0; i < 20'000; ++i) {
    many_ifs += "{% if 1 %}{% set b" + std::to_string(i) + "=1 %}{% endif %}";
  }
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"{{ " + kLong + ".find(" + kPart + ") }}", "-1"},
      {"{{ " + kLong + ".rfind(" + kMirrored + ") }}", "-1"},
      {"{{ " + kPart + " in " + kLong + " }}", "False"},
      {"{{ " + kLong + ".count(" + kPart + ") }}", "0"},
      {"{{ " + kLong + ".split(" + kPart + ")|length }}", "1"},
      {"{{ " + kLong + ".rsplit(" + kMirrored + ")|length }}", "1"},
      {"{{ " + kLong + ".partition(" + kPart + ")|length }}", "3"},
      {"{{ " + kLong + ".replace(" + kPart + ", '')|length }}", "8000000"},
      {"{{ ('a'*1000000)|wordwrap(3)|length }}", "1333333"},
      {"{{ ('a'*1000000 + 'b').strip('b' ~ 'c'*1000000)|length }}", "1000000"},
      {many_names + "{{ a99999 }}", "1"},
      {many_ifs, "the template has too many names beside too many ifs"},
  };
  for (const auto& [source, text] : expected) {
    INFO(source.substr(0, 60));
    const double begin = cpu_seconds();
    const RenderResult result = render(source);
    CHECK(cpu_seconds() - begin < kMaxSeconds);
    CHECK((result.error ? result.error->message : result.text) == text);
  }
}
