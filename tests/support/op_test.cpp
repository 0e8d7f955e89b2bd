#include "tests/support/op_test.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <numeric>

#include "backend/dispatch.h"
#include "backend/fp8.h"

namespace quire::test {

namespace {

template <class F>
decltype(auto) dispatch_stored(DType dtype, F&& f) {
  if (dtype == DType::fp8_e4m3) return f(Type<fp8_e4m3>{});
  return dispatch_float(dtype, f);
}

}  // namespace

HostTensor::HostTensor(DType type, std::vector<std::int64_t> shape)
    : dtype(type), extents(std::move(shape)) {
  bytes.resize(static_cast<std::size_t>(numel()) * size_of(dtype));
}

std::int64_t HostTensor::numel() const {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
}

float HostTensor::at(std::int64_t i) const {
  return dispatch_stored(dtype, [&]<class T>(Type<T>) { return static_cast<float>(as<T>()[i]); });
}

void HostTensor::set(std::int64_t i, float value) {
  dispatch_stored(dtype, [&]<class T>(Type<T>) { as<T>()[i] = T(value); });
}

std::vector<double> HostTensor::values() const {
  std::vector<double> out(static_cast<std::size_t>(numel()));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = at(static_cast<std::int64_t>(i));
  return out;
}

HostTensor random_tensor(std::mt19937& rng, DType dtype, std::vector<std::int64_t> extents,
                         float deviation, float mean) {
  HostTensor t(dtype, std::move(extents));
  std::normal_distribution<float> normal(mean, deviation);
  for (std::int64_t i = 0; i < t.numel(); ++i) t.set(i, normal(rng));
  return t;
}

TensorView view_of(void* data, DType dtype, const std::vector<std::int64_t>& e) {
  switch (e.size()) {
    case 1:
      return {data, dtype, {e[0]}};
    case 2:
      return {data, dtype, {e[0], e[1]}};
    case 3:
      return {data, dtype, {e[0], e[1], e[2]}};
    case 4:
      return {data, dtype, {e[0], e[1], e[2], e[3]}};
    default:
      throw std::logic_error("view_of takes 1 to 4 dimensions");
  }
}

// Not in stream(), where what is queued is to stay so.
void* OpRun::put(const std::byte* bytes, std::size_t count) {
  Buffer& buffer = buffers_.emplace_back(device().allocate(count));
  device().copy(buffer.data(), bytes, count, device().copy_stream());
  device().synchronize(device().copy_stream());
  return buffer.data();
}

void OpRun::write_late(void* data, const std::byte* bytes, std::size_t count) {
  const auto floats = static_cast<std::int64_t>(count / sizeof(float));
  const TensorView source = view_of(put(bytes, count), DType::f32, {floats});
  ops().copy(view_of(data, DType::f32, {floats}), source, stream());
}

TensorView OpRun::upload(const HostTensor& tensor) {
  constexpr std::size_t kEnd = 8192;
  const std::size_t count = tensor.bytes.size() / sizeof(float) * sizeof(float);
  if (device().is_host_memory() || count == 0) return upload_constant(tensor);
  const std::size_t head = count <= 2 * kEnd ? count : kEnd, tail = count <= 2 * kEnd ? 0 : kEnd;
  std::vector<std::byte> bytes = tensor.bytes;
  std::fill_n(bytes.begin(), head, std::byte{0xff});
  std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(count - tail), tail, std::byte{0xff});
  auto* const data = static_cast<std::byte*>(put(bytes.data(), bytes.size()));
  write_late(data, tensor.bytes.data(), head);
  if (tail != 0) write_late(data + count - tail, tensor.bytes.data() + count - tail, tail);
  return view_of(data, tensor.dtype, tensor.extents);
}

TensorView OpRun::upload_constant(const HostTensor& tensor) {
  return view_of(put(tensor.bytes.data(), tensor.bytes.size()), tensor.dtype, tensor.extents);
}

TensorView OpRun::output(DType dtype, std::vector<std::int64_t> extents) {
  HostTensor nan(dtype, std::move(extents));
  std::fill(nan.bytes.begin(), nan.bytes.end(), std::byte{0xff});
  return upload(nan);
}

HostTensor OpRun::download(TensorView view) {
  assert(view.contiguous());
  std::vector<std::int64_t> extents;
  for (int i = 0; i < view.rank(); ++i) extents.push_back(view.extent(i));
  HostTensor out(view.dtype(), extents);
  device().synchronize(stream());
  device().copy(out.bytes.data(), view.data(), out.bytes.size(), stream());
  device().synchronize(stream());
  return out;
}

void check_close(const HostTensor& got, const std::vector<double>& want, Tolerance tolerance) {
  REQUIRE(got.numel() == static_cast<std::int64_t>(want.size()));
  std::int64_t misses = 0, first = -1;
  double worst = 0;
  for (std::int64_t i = 0; i < got.numel(); ++i) {
    const double expected = want[static_cast<std::size_t>(i)];
    const double error = std::abs(got.at(i) - expected);
    const double allowed = tolerance.absolute + tolerance.relative * std::abs(expected);
    if (error <= allowed) continue;  // a NaN is a miss
    if (misses++ == 0) first = i;
    worst = std::max(worst, error);
  }
  if (misses == 0) return;
  INFO(misses << " of " << got.numel() << " wrong, worst error " << worst << "; element " << first
              << " is " << got.at(first) << ", should be "
              << want[static_cast<std::size_t>(first)]);
  CHECK(misses == 0);
}

double distance(const HostTensor& got, const std::vector<double>& want) {
  double sum = 0;
  for (std::size_t i = 0; i < want.size(); ++i)
    sum += std::abs(got.at(static_cast<std::int64_t>(i)) - want[i]);
  return sum;
}

bool same_bits(const HostTensor& a, const HostTensor& b) { return a.bytes == b.bytes; }

}  // namespace quire::test
