// Ranks as threads of one process: what they add up and put side by side, sizes that need several
// exchanges, and one that is lost.

#include <catch2/catch.hpp>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "cpu/shared_collectives.h"

namespace quire {
namespace {

const StreamRef kStream = StreamRef::from_handle(nullptr);

// Runs `body` as each rank, and gives what the ranks' threads threw.
std::vector<std::string> run_ranks(int size, const std::function<void(Collectives&)>& body) {
  const SharedMemory memory = SharedMemory::create("test", 4096 + shared_collectives_bytes(size));
  auto& fate = *reinterpret_cast<SharedFate*>(memory.data());
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(*make_shared_collectives(memory.data() + 4096, fate, rank, size));
      } catch (const Failure& failure) {
        errors[static_cast<std::size_t>(rank)] = failure.what();
        fate.fail(failure.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// Differs by rank and place, and is no number that adds up exactly.
float value(int rank, std::int64_t i) {
  return 1.f / static_cast<float>(3 + rank * 7 + i % 1013) * static_cast<float>(1 + i % 5);
}

TensorView view(std::vector<float>& values, std::int64_t rows, std::int64_t columns) {
  return {values.data(), DType::f32, {rows, columns}};
}

}  // namespace

TEST_CASE("Ranks add up in their order, to the same bits", "[collectives]") {
  const int size = GENERATE(1, 2, 3, 5);
  const std::int64_t count = GENERATE(1, 4096, 262'144, 262'145, 700'003);
  std::vector<std::vector<float>> sums(static_cast<std::size_t>(size));
  const auto errors = run_ranks(size, [&](Collectives& collectives) {
    auto& own = sums[static_cast<std::size_t>(collectives.rank())];
    for (int again = 0; again < 3; ++again) {
      own.clear();
      for (std::int64_t i = 0; i < count; ++i) own.push_back(value(collectives.rank(), i));
      collectives.all_reduce(view(own, 1, count), kStream);
    }
  });
  for (const std::string& error : errors) CHECK(error.empty());
  std::vector<float> expected;
  for (std::int64_t i = 0; i < count; ++i) {
    expected.push_back(value(0, i));
    for (int rank = 1; rank < size; ++rank) expected.back() += value(rank, i);
  }
  for (const auto& sum : sums) CHECK(sum == expected);
}

TEST_CASE("Who wants them gets the parts side by side, the last of them narrower",
          "[collectives]") {
  const bool all = GENERATE(false, true);
  const int size = GENERATE(2, 3);
  const std::int64_t rows = GENERATE(1, 7, 300);
  const std::int64_t columns = GENERATE(64, 1537, 600'001);
  if (rows == 300 && columns > 2000) return;  // much memory, nothing new
  const std::int64_t width = (columns + size - 1) / size;
  const std::size_t readers = all ? static_cast<std::size_t>(size) : 1;
  std::vector<std::vector<float>> outs(
      readers, std::vector<float>(static_cast<std::size_t>(rows * columns), -1.f));
  const auto at = [](std::int64_t row, std::int64_t column) { return value(0, row * 31 + column); };
  const auto errors = run_ranks(size, [&](Collectives& collectives) {
    const std::int64_t begin = collectives.rank() * width;
    const std::int64_t own = std::min(width, columns - begin);
    std::vector<float> part;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < own; ++c) part.push_back(at(r, begin + c));
    const auto rank = static_cast<std::size_t>(collectives.rank());
    collectives.gather_columns(rank < readers ? view(outs[rank], rows, columns) : TensorView(),
                               view(part, rows, own), width, kStream);
  });
  for (const std::string& error : errors) CHECK(error.empty());
  std::int64_t wrong = 0;
  for (const auto& out : outs)
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c)
        wrong += out[static_cast<std::size_t>(r * columns + c)] != at(r, c);
  CHECK(wrong == 0);
}

TEST_CASE("What rank 0 has comes to all", "[collectives]") {
  const int size = GENERATE(1, 2, 5);
  const std::int64_t count = GENERATE(1, 262'145);
  std::vector<std::vector<float>> all(static_cast<std::size_t>(size));
  const auto errors = run_ranks(size, [&](Collectives& collectives) {
    auto& own = all[static_cast<std::size_t>(collectives.rank())];
    for (std::int64_t i = 0; i < count; ++i) own.push_back(value(collectives.rank(), i));
    collectives.broadcast(view(own, 1, count), kStream);
  });
  CHECK(errors == std::vector<std::string>(static_cast<std::size_t>(size)));
  for (const auto& own : all) CHECK(own == all[0]);
}

TEST_CASE("Who waits for a rank that is lost is told so", "[collectives]") {
  const auto errors = run_ranks(3, [](Collectives& collectives) {
    if (collectives.rank() == 2) throw Failure(ErrorCode::internal, "rank 2 is gone");
    std::vector<float> values(8, 1.f);
    collectives.all_reduce(view(values, 1, 8), kStream);
  });
  for (const std::string& error : errors) CHECK(error == "rank 2 is gone");
}

}  // namespace quire
