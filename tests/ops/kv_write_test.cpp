// New keys and values on their way into the cache.

#include <catch2/catch.hpp>

#include "tests/support/op_test.h"

namespace quire::test {

TEST_CASE("kv_write puts tokens into their slots and skips -1", "[ops][attention]") {
  const DType dtype = GENERATE(DType::f32, DType::bf16);
  const std::int64_t dim = GENERATE(20, 24);  // the latter in runs of eight
  const std::int64_t blocks = 4, size = 8, heads = 2, row = heads * dim;
  std::mt19937 rng(5);
  const HostTensor k = random_tensor(rng, DType::f32, {5, heads, dim});
  const HostTensor v = random_tensor(rng, DType::f32, {5, heads, dim});
  const std::vector<std::int64_t> slots = {9, -1, 31, 0, 10};
  // K and V of a block side by side, as in a page.
  const HostTensor pages = random_tensor(rng, dtype, {blocks, 2 * size * row});
  std::vector<double> want = pages.values();
  for (std::size_t t = 0; t < slots.size(); ++t) {
    if (slots[t] < 0) continue;
    const std::int64_t at = slots[t] / size * 2 * size * row + slots[t] % size * row;
    for (std::int64_t i = 0; i < row; ++i) {
      want[static_cast<std::size_t>(at + i)] = k.at(static_cast<std::int64_t>(t) * row + i);
      want[static_cast<std::size_t>(at + size * row + i)] =
          v.at(static_cast<std::int64_t>(t) * row + i);
    }
  }
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const TensorView all = run.upload(pages);
    const auto cache = [&](std::int64_t part) {
      return TensorView(all.narrow(1, part * size * row, (part + 1) * size * row).data(), dtype,
                        {blocks, size, heads, dim})
          .with_strides({2 * size * row, row, dim, 1});
    };
    run.ops().kv_write(cache(0), cache(1), run.upload(k), run.upload(v),
                       run.upload(tensor_of(slots)), {}, run.stream());
    check_close(run.download(all), want);
  }
}

TEST_CASE("kv_write keeps rows that have no value of their own", "[ops][attention][mla]") {
  const std::int64_t blocks = 3, size = 4, width = 40;
  std::mt19937 rng(6);
  const HostTensor rows = random_tensor(rng, DType::f32, {3, 1, width});
  const HostTensor before = random_tensor(rng, DType::f32, {blocks, size, 1, width});
  const std::vector<std::int64_t> slots = {11, -1, 2};
  std::vector<double> want = before.values();
  for (const std::int64_t t : {0, 2}) {
    for (std::int64_t i = 0; i < width; ++i)
      want[static_cast<std::size_t>(slots[static_cast<std::size_t>(t)] * width + i)] =
          rows.at(t * width + i);
  }
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const TensorView cache = run.upload(before);
    run.ops().kv_write(cache, {}, run.upload(rows), {}, run.upload(tensor_of(slots)), {},
                       run.stream());
    check_close(run.download(cache), want);
  }
}

}  // namespace quire::test
