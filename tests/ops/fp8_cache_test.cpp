// What an fp8 cache stores and what is read of it, code by code; attention over one is among the
// cases of attention_test.cpp.

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/ops/fp8_reference.h"
#include "tests/support/op_test.h"

namespace quire::test {
namespace {

// Around every boundary between two codes, from both sides and with both signs; and beyond the
// last.
std::vector<float> edges() {
  using Limits = std::numeric_limits<float>;
  std::vector<float> values = {
      0.f, Limits::denorm_min(), 448.f, 464.f, 1e6f, Limits::infinity(), Limits::quiet_NaN()};
  for (int code = 0; code < kFp8Largest; ++code) {
    const auto half = static_cast<float>((fp8_value(code) + fp8_value(code + 1)) / 2);
    for (const float value : {std::nextafter(half, 0.f), half, std::nextafter(half, 1e9f)})
      values.push_back(value);
  }
  const std::size_t count = values.size();
  for (std::size_t i = 0; i < count; ++i) values.push_back(-values[i]);
  return values;
}

void check_codes(const HostTensor& got, const std::vector<double>& want) {
  REQUIRE(got.numel() == static_cast<std::int64_t>(want.size()));
  for (std::size_t i = 0; i < want.size(); ++i) {
    const int code = static_cast<int>(got.bytes[i]), right = fp8_nearest(want[i]);
    INFO(want[i]);
    CHECK((right == kFp8Nan ? code & 0x7f : code) == right);
  }
}

struct Written {
  HostTensor k, v;
};

// Each of the values as a token of one element in k, and in reverse in v.
Written write(OpBackend& backend, const HostTensor& x, CacheScale scale) {
  OpRun run(backend);
  const std::int64_t dim = x.extents[2];
  HostTensor reversed = x;
  for (std::int64_t i = 0; i < dim; ++i) reversed.set(i, x.at(dim - 1 - i));
  const TensorView k = run.output(DType::fp8_e4m3, {1, 1, 1, dim});
  const TensorView v = run.output(DType::fp8_e4m3, {1, 1, 1, dim});
  run.ops().kv_write(k, v, run.upload(x), run.upload(reversed),
                     run.upload(tensor_of(std::vector<std::int64_t>{0})), scale, run.stream());
  return {run.download(k), run.download(v)};
}

}  // namespace

TEST_CASE("an fp8 cache stores the nearest code, saturating", "[ops][attention][fp8]") {
  const std::vector<float> values = edges();
  const HostTensor x = tensor_of(values, {1, 1, static_cast<std::int64_t>(values.size())});
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    check_codes(write(backend, x, {}).k, x.values());
  }
}

TEST_CASE("an fp8 cache stores what is left of a division by its scale", "[ops][attention][fp8]") {
  const DType dtype = GENERATE(DType::f32, DType::bf16, DType::f16);
  const CacheScale scale{.k = 0.013f, .v = 3.7f};
  std::mt19937 rng(1);
  const HostTensor x = random_tensor(rng, dtype, {1, 1, 333}, /*deviation=*/2.f);
  std::vector<double> k, v;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    k.push_back(static_cast<double>(x.at(i) / scale.k));
    v.push_back(static_cast<double>(x.at(x.numel() - 1 - i) / scale.v));
  }
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    const Written got = write(backend, x, scale);
    check_codes(got.k, k);
    check_codes(got.v, v);
  }
}

TEST_CASE("attention reads every code of an fp8 cache as what it means", "[ops][attention][fp8]") {
  const DType dtype = GENERATE(DType::f32, DType::bf16, DType::f16);
  const std::int64_t dim = 256;
  const HostTensor zeros(dtype, {1, 1, dim});
  const HostTensor keys(DType::fp8_e4m3, {1, 1, 1, dim});
  HostTensor codes = keys;  // of the only token, whose weight is 1
  for (std::int64_t i = 0; i < dim; ++i) codes.bytes[static_cast<std::size_t>(i)] = std::byte(i);
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    AttentionArgs args;
    args.out = run.output(dtype, {1, 1, dim});
    args.q = run.upload(zeros);
    args.k_cache = run.upload(keys);
    args.v_cache = run.upload(codes);
    args.block_table = run.upload(tensor_of(std::vector<std::int32_t>{0}, {1, 1}));
    args.query_start = run.upload(tensor_of(std::vector<std::int32_t>{0, 1}));
    args.seq_lens = run.upload(tensor_of(std::vector<std::int32_t>{1}));
    args.cache_scale.v = 0.5f;  // exact in any dtype
    args.max_query_len = args.max_seq_len = 1;
    run.ops().paged_attention(args, run.stream());
    const HostTensor got = run.download(args.out);
    for (int code = 0; code < 256; ++code) {
      INFO(code);
      const double want = fp8_value(code) / 2;
      CHECK((std::isnan(want) ? std::isnan(got.at(code)) : got.at(code) == want));
    }
  }
}

}  // namespace quire::test
