#pragma once
// The emulated device's memory. It lies in an address range of its own, which can be read and
// written only while work of the device runs: a host that touches it faults, as it does beside a
// device. Addresses are never used twice, so that a stale pointer stays one. Callers hold the
// runtime's lock.

#include <cuda_runtime.h>

#include <string>
#include <vector>

namespace emulation {

// QUIRE_EMULATION_MEMORY, bytes; 8 GiB without.
std::size_t device_bytes();

// Exact sizes: ASan sees the very next byte. Contents start as 0xff.
cudaError_t allocate_device(void** data, std::size_t bytes);
cudaError_t free_device(void* data);
std::size_t device_bytes_free();
// What the driver keeps on the device, such as graphs.
cudaError_t take_device(std::size_t bytes);
void give_device(std::size_t bytes);
cudaError_t allocate_pinned(void** data, std::size_t bytes);
cudaError_t free_pinned(void* data);

// The nth allocation from now on (device, pinned or the driver's) fails; 0: none does.
void fail_allocation(int nth);
bool all_released();

enum class Space { pageable, pinned, device, freed };  // freed: once a device's, or never one
Space space_of(const void* address);                   // the end of an allocation belongs to it
// All bytes lie in one allocation; of pageable memory nothing is known.
bool is_whole(const void* address, std::size_t bytes);

// While one lives, device memory is open to this process.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

// The words of an object without padding that are addresses of device or pinned memory. Throws
// where one is an address of the host's other memory, or of memory that was freed.
void find_pointers(const void* object, std::size_t bytes, const std::string& name,
                   std::vector<const void*>& found);
void require_live(const std::vector<const void*>& pointers);

}  // namespace emulation
