#include "model/loader_threads.h"

#include <catch2/catch.hpp>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

namespace quire {
namespace {

TEST_CASE("a loop in parallel visits every row once, in whole grains", "[model]") {
  for (const std::int64_t count : {0, 1, 15, 16, 17, 1000, 4099}) {
    std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
    std::atomic<int> crooked{0};
    for_rows_in_parallel(count, 16, [&](std::int64_t begin, std::int64_t end) {
      crooked += begin % 16 != 0 || (end % 16 != 0 && end != count);
      for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
    });
    CHECK(crooked == 0);
    int wrong = 0;
    for (const auto& visit : visits) wrong += visit != 1;
    CHECK(wrong == 0);
  }
}

TEST_CASE("what the first failing rows throw is what the loop throws", "[model]") {
  for (int repeat = 0; repeat < 50; ++repeat) {
    std::string seen;
    try {
      for_rows_in_parallel(1024, 1, [](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
          if (i >= 700) throw std::runtime_error(std::to_string(i));
      });
    } catch (const std::runtime_error& e) {
      seen = e.what();
    }
    CHECK(seen == "700");
  }
}

}  // namespace
}  // namespace quire
