#pragma once
// The part of Catch2 that the operator tests use, for a GPU machine that has no Catch2 and no
// package registry (scripts/gpu-check builds there with QUIRE_BACKENDS_ONLY). Everywhere else the
// same tests run with Catch2 itself.

#include <cstdio>
#include <cstring>
#include <exception>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace without_catch2 {

struct Test {
  std::string name, tags;
  void (*body)();
};
inline std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}
struct Registered {
  Registered(const char* name, const char* tags, void (*body)()) {
    tests().push_back({name, tags, body});
  }
};

// The values that the GENERATEs of a test have now, in the order they are met.
struct Choices {
  struct Point {
    std::size_t at, count;
  };
  std::vector<Point> points;
  std::size_t met = 0;
  std::size_t choose(std::size_t count) {
    if (met == points.size()) points.push_back({0, count});
    return points[met++].at;
  }
  bool advance() {
    met = 0;
    for (; !points.empty(); points.pop_back()) {
      if (++points.back().at < points.back().count) return true;
    }
    return false;
  }
};
struct Run {
  Choices choices;
  std::vector<std::string> infos;
  int checks = 0, failed = 0;
};
inline Run& run() {
  static Run state;
  return state;
}
struct Stop {};  // a REQUIRE failed

template <class T>
std::vector<T> values(std::initializer_list<T> list) {
  return list;
}
template <class T>
std::vector<T> from_range(const std::vector<T>& range) {
  return range;
}
template <class T>
T generate(const std::vector<T>& list) {
  return list[run().choices.choose(list.size())];
}
template <class T, class... More>
T generate(T first, More... more) {
  return generate(std::vector<T>{first, static_cast<T>(more)...});
}

struct Info {
  explicit Info(const std::ostringstream& text) { run().infos.push_back(text.str()); }
  ~Info() { run().infos.pop_back(); }
};
inline void check(bool ok, const char* text, const char* file, int line, bool required) {
  ++run().checks;
  if (ok) return;
  ++run().failed;
  std::printf("%s:%d: FAILED: %s\n", file, line, text);
  for (const std::string& info : run().infos) std::printf("  %s\n", info.c_str());
  if (required) throw Stop();
}

inline void run_test(const Test& test) {
  run().choices = {};
  do {
    const int failed_before = run().failed;
    try {
      test.body();
    } catch (const Stop&) {
    } catch (const std::exception& error) {
      ++run().failed;
      std::printf("FAILED by exception: %s\n", error.what());
    }
    if (run().failed != failed_before) std::printf("  in: %s\n", test.name.c_str());
  } while (run().choices.advance());
}

// Understands "~[tag]~[tag]" and "[tag]".
inline bool selected(const Test& test, const char* filter) {
  for (const char* at = filter; (at = std::strchr(at, '[')) != nullptr; ++at) {
    const std::string tag(at, std::strchr(at, ']') + 1);
    const bool excluded = at != filter && at[-1] == '~';
    if ((test.tags.find(tag) != std::string::npos) == excluded) return false;
  }
  return true;
}

inline int main(int count, char** arguments) {
  int ran = 0;
  for (const Test& test : tests()) {
    if (count > 1 && !selected(test, arguments[1])) continue;
    run_test(test);
    ++ran;
  }
  std::printf("%d checks in %d tests, %d failed\n", run().checks, ran, run().failed);
  return run().failed != 0 ? 1 : 0;
}

}  // namespace without_catch2

#define WITHOUT_CATCH2_JOIN2(a, b) a##b
#define WITHOUT_CATCH2_JOIN(a, b) WITHOUT_CATCH2_JOIN2(a, b)
#define WITHOUT_CATCH2_NAME(base) WITHOUT_CATCH2_JOIN(base, __LINE__)

#define TEST_CASE(name, tags)                                                 \
  static void WITHOUT_CATCH2_NAME(test_)();                                   \
  static const ::without_catch2::Registered WITHOUT_CATCH2_NAME(registered_)( \
      name, tags, WITHOUT_CATCH2_NAME(test_));                                \
  static void WITHOUT_CATCH2_NAME(test_)()
#define TEMPLATE_TEST_CASE(name, tags, ...)                                                    \
  template <class TestType>                                                                    \
  static void WITHOUT_CATCH2_NAME(test_)();                                                    \
  template <class... Types>                                                                    \
  static void WITHOUT_CATCH2_NAME(register_)() {                                               \
    (::without_catch2::tests().push_back({name, tags, WITHOUT_CATCH2_NAME(test_) < Types > }), \
     ...);                                                                                     \
  }                                                                                            \
  static const int WITHOUT_CATCH2_NAME(registered_) =                                          \
      (WITHOUT_CATCH2_NAME(register_) < __VA_ARGS__ > (), 0);                                  \
  template <class TestType>                                                                    \
  static void WITHOUT_CATCH2_NAME(test_)()
#define GENERATE(...)                 \
  [&] {                               \
    using namespace ::without_catch2; \
    return generate(__VA_ARGS__);     \
  }()
#define GENERATE_COPY(...) GENERATE(__VA_ARGS__)
#define INFO(text)                                         \
  const ::without_catch2::Info WITHOUT_CATCH2_NAME(info_)( \
      static_cast<std::ostringstream&&>(std::ostringstream() << text))
#define CHECK(...) \
  ::without_catch2::check(static_cast<bool>(__VA_ARGS__), #__VA_ARGS__, __FILE__, __LINE__, false)
#define REQUIRE(...) \
  ::without_catch2::check(static_cast<bool>(__VA_ARGS__), #__VA_ARGS__, __FILE__, __LINE__, true)
#define FAIL(text)                                                    \
  do {                                                                \
    INFO(text);                                                       \
    ::without_catch2::check(false, "FAIL", __FILE__, __LINE__, true); \
  } while (false)

#ifdef CATCH_CONFIG_MAIN
int main(int count, char** arguments) { return without_catch2::main(count, arguments); }
#endif
