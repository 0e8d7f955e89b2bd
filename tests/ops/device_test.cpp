// Order of work on a device: what streams, events and graphs promise to the engine.

#include <catch2/catch.hpp>
#include <cstring>

#include "tests/support/op_test.h"

namespace quire::test {
namespace {

constexpr std::int64_t kCount = 1 << 16;
constexpr std::size_t kBytes = kCount * sizeof(float);

struct Pinned {
  explicit Pinned(Device& device, float value) : buffer(device.allocate_host(kBytes)) {
    for (std::int64_t i = 0; i < kCount; ++i) floats()[i] = value;
  }
  float* floats() const { return static_cast<float*>(buffer.data()); }
  bool all(float value) const {
    return std::all_of(floats(), floats() + kCount, [=](float x) { return x == value; });
  }
  Buffer buffer;
};

}  // namespace

TEST_CASE("a stream that waits for an event sees the work before it", "[ops][device]") {
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    Device& device = *backend.device;
    const Pinned from(device, 3.f), to(device, 0.f);
    const Buffer x = device.allocate(kBytes);
    const auto written = device.create_event();
    device.copy(x.data(), from.floats(), kBytes, device.stream());
    written->record(device.stream());
    device.wait(device.copy_stream(), *written);
    device.copy(to.floats(), x.data(), kBytes, device.copy_stream());
    device.synchronize(device.copy_stream());
    CHECK(to.all(3.f));
  }
}

TEST_CASE("what an event marks has ended when it was waited for", "[ops][device]") {
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    Device& device = *backend.device;
    const Pinned from(device, 5.f), to(device, 0.f);
    const Buffer x = device.allocate(kBytes);
    const auto read = device.create_event();
    device.copy(x.data(), from.floats(), kBytes, device.stream());
    device.copy(to.floats(), x.data(), kBytes, device.stream());
    read->record(device.stream());
    read->wait();
    CHECK(read->ready());
    CHECK(to.all(5.f));
  }
}

TEST_CASE("a graph replays on the contents of that moment", "[ops][device]") {
  for (OpBackend& backend : op_backends()) {
    INFO(backend.name);
    Device& device = *backend.device;
    const Pinned from(device, 1.f), to(device, 0.f);
    const Buffer memory = device.allocate(kBytes);
    const TensorView x(memory.data(), DType::f32, {1, kCount});
    device.copy(x.data(), from.floats(), kBytes, device.stream());
    const auto graph = device.capture([&] { backend.ops->scale(x, 2.f, device.stream()); });
    if (graph == nullptr) continue;  // no graphs there
    graph->replay(device.stream());
    graph->replay(device.stream());
    device.copy(to.floats(), x.data(), kBytes, device.stream());
    device.synchronize(device.stream());
    CHECK(to.all(4.f));
  }
}

}  // namespace quire::test
