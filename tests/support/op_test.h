#pragma once
// What the operator tests share: tensors on the host, and a run of one case on one backend with its
// data in device buffers. The same tests run for every backend that op_backends() lists.

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/device.h"
#include "backend/ops.h"
#include "tests/support/tolerance.h"

namespace quire::test {

struct OpBackend {
  std::string name;
  std::unique_ptr<Device> device;
  std::unique_ptr<Ops> ops;
};

// Defined by the file that the test program links for its kind of device.
std::vector<OpBackend>& op_backends();

struct HostTensor {
  DType dtype = DType::f32;
  std::vector<std::int64_t> extents;
  std::vector<std::byte> bytes;

  HostTensor() = default;
  HostTensor(DType type, std::vector<std::int64_t> shape);
  std::int64_t numel() const;
  float at(std::int64_t i) const;  // floating-point dtypes
  void set(std::int64_t i, float value);
  std::vector<double> values() const;
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(bytes.data());
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
};

template <class T>
HostTensor tensor_of(const std::vector<T>& values, std::vector<std::int64_t> extents = {}) {
  if (extents.empty()) extents = {static_cast<std::int64_t>(values.size())};
  HostTensor t(dtype_of<T>, extents);
  std::copy(values.begin(), values.end(), t.as<T>());
  return t;
}

// Normally distributed, rounded to dtype.
HostTensor random_tensor(std::mt19937& rng, DType dtype, std::vector<std::int64_t> extents,
                         float deviation = 1.f, float mean = 0.f);

class OpRun {
 public:
  explicit OpRun(OpBackend& backend) : backend_(backend) {}
  Ops& ops() { return *backend_.ops; }
  Device& device() { return *backend_.device; }
  StreamRef stream() { return backend_.device->stream(); }

  // Its ends are written by a kernel when the operators behind it are queued: one of theirs that
  // reads before it awaits the kernels in front sees NaN there.
  TensorView upload(const HostTensor& tensor);
  // There when the call returns: weights, which kernels may fetch earlier.
  TensorView upload_constant(const HostTensor& tensor);
  // Filled with NaN, so that what is not written shows.
  TensorView output(DType dtype, std::vector<std::int64_t> extents);
  HostTensor download(TensorView view);  // dense

 private:
  void* put(const std::byte* bytes, std::size_t count);
  void write_late(void* data, const std::byte* bytes, std::size_t count);
  OpBackend& backend_;
  std::vector<Buffer> buffers_;
};

// Checks got against want elementwise; the message names the first miss and the largest.
void check_close(const HostTensor& got, const std::vector<double>& want, Tolerance tolerance);
inline void check_close(const HostTensor& got, const std::vector<double>& want) {
  check_close(got, want, tolerance_of(got.dtype));
}
// Of all elements together: which of two references an operator is to be held to.
double distance(const HostTensor& got, const std::vector<double>& want);
bool same_bits(const HostTensor& a, const HostTensor& b);

TensorView view_of(void* data, DType dtype, const std::vector<std::int64_t>& extents);

}  // namespace quire::test
