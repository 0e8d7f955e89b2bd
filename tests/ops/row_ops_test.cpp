#include <catch2/catch.hpp>
#include <cmath>

#include "tests/support/op_test.h"

namespace quire::test {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double activate(Activation act, double x) {
  switch (act) {
    case Activation::silu:
      return x * sigmoid(x);
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::relu2:
      return x > 0 ? x * x : 0;
    case Activation::clamped_swiglu:
      return std::min(x, 7.) * sigmoid(1.702 * std::min(x, 7.));
  }
  return 0;
}

std::vector<double> map(const HostTensor& a, const HostTensor& b, double (*f)(double, double)) {
  std::vector<double> out = a.values();
  const auto n = static_cast<std::size_t>(b.numel());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t width = static_cast<std::size_t>(a.extents.back());
    const std::size_t at = n == out.size() ? i : i / width;
    out[i] = f(out[i], b.at(static_cast<std::int64_t>(at)));
  }
  return out;
}

}  // namespace

TEST_CASE("embedding copies rows and widens or rounds them", "[ops][rows]") {
  const DType from = GENERATE(DType::f32, DType::bf16, DType::f16);
  const DType to = GENERATE(DType::f32, DType::bf16);
  std::mt19937 rng(1);
  const HostTensor table = random_tensor(rng, from, {50, 37});
  const std::vector<std::int32_t> ids = {3, 49, 0, 3, 17};
  std::vector<double> want;
  for (const std::int32_t id : ids) {
    for (int i = 0; i < 37; ++i) want.push_back(table.at(id * 37 + i));
  }
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const TensorView out = run.output(to, {5, 37});
    run.ops().embedding(out, run.upload(table), run.upload(tensor_of(ids)), run.stream());
    check_close(run.download(out), want);
  }
}

TEST_CASE("embedding_share has zeros for rows of others", "[ops][rows]") {
  const DType from = GENERATE(DType::f32, DType::bf16, DType::f16);
  const DType to = GENERATE(DType::f32, DType::bf16);
  const std::int64_t first = GENERATE(0, 7);
  std::mt19937 rng(1);
  const HostTensor table = random_tensor(rng, from, {10, 37});
  const std::vector<std::int32_t> ids = {3, 6, 7, 9, 10, 16, 17, 40, 0};
  std::vector<double> want;
  for (const std::int32_t id : ids) {
    const bool is_here = id >= first && id < first + 10;
    for (int i = 0; i < 37; ++i) want.push_back(is_here ? table.at((id - first) * 37 + i) : 0.);
  }
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const TensorView out = run.output(to, {static_cast<std::int64_t>(ids.size()), 37});
    run.ops().embedding_share(out, run.upload(table), first, run.upload(tensor_of(ids)),
                              run.stream());
    check_close(run.download(out), want);
  }
}

TEST_CASE("gather_rows copies rows of any dtype bit for bit", "[ops][rows]") {
  const DType dtype = GENERATE(DType::f32, DType::bf16, DType::i32, DType::i64, DType::u8);
  const std::int64_t width = GENERATE(1, 19);
  std::mt19937 rng(6);
  HostTensor x(dtype, {12, width}), want(dtype, {3, width});
  for (std::byte& b : x.bytes) b = static_cast<std::byte>(rng());
  const std::vector<std::int32_t> rows = {11, 0, 11};
  const std::size_t bytes = static_cast<std::size_t>(width) * size_of(dtype);
  for (std::size_t i = 0; i < 3; ++i) {
    std::copy_n(x.bytes.begin() + static_cast<std::ptrdiff_t>(bytes) * rows[i], bytes,
                want.bytes.begin() + static_cast<std::ptrdiff_t>(bytes * i));
  }
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const TensorView out = run.output(dtype, {3, width});
    run.ops().gather_rows(out, run.upload(x), run.upload(tensor_of(rows)), run.stream());
    CHECK(same_bits(run.download(out), want));
  }
}

TEST_CASE("copy moves strided heads", "[ops][rows]") {
  std::mt19937 rng(7);
  const HostTensor x = random_tensor(rng, DType::bf16, {4, 3, 20});
  HostTensor want = random_tensor(rng, DType::bf16, {4, 3, 9});
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const TensorView out = run.upload(want);
    run.ops().copy(out.narrow(2, 2, 7), run.upload(x).narrow(2, 15, 20), run.stream());
    for (std::int64_t r = 0; r < 12; ++r) {
      for (std::int64_t i = 0; i < 5; ++i) want.set(r * 9 + 2 + i, x.at(r * 20 + 15 + i));
    }
    CHECK(same_bits(run.download(out), want));
  }
}

TEST_CASE("add, scale, soft_cap and sigmoid_gate work by elements", "[ops][rows]") {
  const DType dtype = GENERATE(DType::f32, DType::bf16, DType::f16);
  const std::int64_t width = GENERATE(45, 48);
  std::mt19937 rng(2);
  const HostTensor a = random_tensor(rng, dtype, {9, width}),
                   b = random_tensor(rng, dtype, {9, width});
  const HostTensor gate = random_tensor(rng, dtype, {9, 1});
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name << " " << name_of(dtype));
    OpRun run(backend);
    const TensorView sum = run.output(dtype, {9, width});
    run.ops().add(sum, run.upload(a), run.upload(b), run.stream());
    check_close(run.download(sum), map(a, b, [](double x, double y) { return x + y; }));

    const TensorView scaled = run.upload(a);
    run.ops().scale(scaled, 0.7f, run.stream());
    check_close(run.download(scaled), map(a, a, [](double x, double) { return 0.7 * x; }));

    const TensorView capped = run.upload(a);
    run.ops().soft_cap(capped, 1.5f, run.stream());
    check_close(run.download(capped),
                map(a, a, [](double x, double) { return 1.5 * std::tanh(x / 1.5); }));

    const auto gated = [](double x, double g) { return x * sigmoid(g); };
    const TensorView by_element = run.upload(a), by_row = run.upload(a);
    run.ops().sigmoid_gate(by_element, run.upload(b), run.stream());
    run.ops().sigmoid_gate(by_row, run.upload(gate), run.stream());
    check_close(run.download(by_element), map(a, b, gated));
    check_close(run.download(by_row), map(a, gate, gated));
  }
}

TEST_CASE("activations, alone and times a gate's partner", "[ops][rows]") {
  const DType dtype = GENERATE(DType::f32, DType::bf16);
  const Activation act = GENERATE(Activation::silu, Activation::gelu_tanh, Activation::relu2,
                                  Activation::clamped_swiglu);
  const std::int64_t tokens = 7, width = 53;
  std::mt19937 rng(3);
  const HostTensor x = random_tensor(rng, dtype, {tokens, 2 * width}, 3.f);
  std::vector<double> alone, product;
  for (std::int64_t i = 0; i < tokens * width; ++i) {
    const std::int64_t row = i / width * 2 * width;
    double up = x.at(row + width + i % width);
    if (act == Activation::clamped_swiglu) up = std::clamp(up, -7., 7.) + 1;
    product.push_back(activate(act, x.at(row + i % width)) * up);
    alone.push_back(activate(act, x.at(row + i % width)));
  }
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name << " " << static_cast<int>(act));
    OpRun run(backend);
    const TensorView out = run.output(dtype, {tokens, width}), xs = run.upload(x);
    run.ops().gated_activation(out, xs, act, run.stream());
    check_close(run.download(out), product);
    if (act == Activation::clamped_swiglu) continue;
    run.ops().activation(out, xs.narrow(1, 0, width), act, run.stream());
    check_close(run.download(out), alone);
  }
}

TEST_CASE("extreme inputs of an activation give limits, not NaN", "[ops][rows]") {
  const HostTensor x =
      tensor_of<float>({-1e30f, -200.f, -90.f, -1e-30f, 0.f, 90.f, 200.f, 1e30f}, {1, 8});
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const TensorView out = run.output(DType::f32, {1, 8});
    run.ops().activation(out, run.upload(x), Activation::silu, run.stream());
    check_close(run.download(out), {0, 0, 0, 0, 0, 90., 200., 1e30}, {1e-30, 1e-6});
    const TensorView capped = run.upload(x);
    run.ops().soft_cap(capped, 30.f, run.stream());
    CHECK(run.download(capped).at(0) == -30.f);
    CHECK(run.download(capped).at(7) == 30.f);
  }
}

TEST_CASE("rope turns the first dimensions in both pairings", "[ops][rope]") {
  const DType dtype = GENERATE(DType::f32, DType::bf16);
  const auto style = GENERATE(RopeStyle::halves, RopeStyle::interleaved);
  const std::int64_t rotary = GENERATE(32, 12), tokens = 5, heads = 3, dim = 32, half = rotary / 2;
  std::mt19937 rng(4);
  const HostTensor x = random_tensor(rng, dtype, {tokens, heads, dim});
  const std::vector<std::int32_t> positions = {0, 1, 2, 90, 5};
  HostTensor table(DType::f32, {100, rotary});
  for (std::int64_t p = 0; p < 100; ++p) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = p * std::pow(10000., -2. * i / rotary);
      table.set(p * rotary + i, static_cast<float>(std::cos(angle)));
      table.set(p * rotary + half + i, static_cast<float>(std::sin(angle)));
    }
  }
  std::vector<double> want = x.values();
  for (std::int64_t r = 0; r < tokens * heads; ++r) {
    const std::int64_t p = positions[static_cast<std::size_t>(r / heads)];
    for (std::int64_t i = 0; i < half; ++i) {
      const bool pairs = style == RopeStyle::interleaved;
      const auto a = static_cast<std::size_t>(r * dim + (pairs ? 2 * i : i));
      const auto b = static_cast<std::size_t>(r * dim + (pairs ? 2 * i + 1 : i + half));
      const double cos = table.at(p * rotary + i), sin = table.at(p * rotary + half + i);
      const double old_a = want[a], old_b = want[b];
      want[a] = old_a * cos - old_b * sin;
      want[b] = old_b * cos + old_a * sin;
    }
  }
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const TensorView xs = run.upload(x);
    run.ops().rope(xs, run.upload(tensor_of(positions)), run.upload(table), style, run.stream());
    check_close(run.download(xs), want);
  }
}

TEST_CASE("blocks are copied and zeroed by id", "[ops][blocks]") {
  std::mt19937 rng(5);
  HostTensor pages(DType::u8, {6, 100});
  for (std::byte& b : pages.bytes) b = static_cast<std::byte>(1 + rng() % 255);
  HostTensor want = pages;
  const auto page = [](HostTensor& t, int i) { return t.bytes.begin() + i * 100; };
  std::copy(page(want, 1), page(want, 2), page(want, 4));
  std::copy(page(want, 0), page(want, 1), page(want, 3));
  std::fill(page(want, 5), want.bytes.end(), std::byte{0});
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    OpRun run(backend);
    const TensorView all = run.upload(pages);
    run.ops().copy_blocks(all, run.upload(tensor_of<std::int32_t>({4, 3})),
                          run.upload(tensor_of<std::int32_t>({1, 0})), run.stream());
    run.ops().zero_blocks(all, run.upload(tensor_of<std::int32_t>({5})), run.stream());
    CHECK(same_bits(run.download(all), want));
  }
}

}  // namespace quire::test
