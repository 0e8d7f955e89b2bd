#pragma once
// The CPU backend's factories; app/ and tests use these and nothing else of cpu/.

#include <memory>

#include "backend/device.h"
#include "backend/ops.h"

namespace quire {

// Instruction sets in the order of preference; a later one includes those before it.
enum class CpuIsa : std::uint8_t { portable, avx2, avx512, avx512_bf16, amx_bf16 };

struct CpuOptions {
  int threads = 0;  // 0: physical cores that this process may use; includes the calling thread
  // The best instruction set that is used if the machine has it; lower ones are for tests.
  CpuIsa best_isa = CpuIsa::amx_bf16;
};

const char* name_of(CpuIsa isa);
// The best instruction set of this machine.
CpuIsa detect_cpu_isa();
// Has this machine AVX512-VNNI? Ice Lake has it and no AVX512-BF16.
bool has_avx512_vnni();
// Physical cores within this process's affinity mask and cgroup quota; at least 1.
int available_cores();
// Binds the calling thread, and those that it starts from then on, to one of so many equal parts of
// them, in order. False, and nothing happens, where there are fewer.
bool use_cores_of_part(int part, int parts);

std::unique_ptr<Device> make_cpu_device();
// Owns its workers. One thread at a time may call its operators.
std::unique_ptr<Ops> make_cpu_ops(const CpuOptions& options = {});
// What the CPU's operators support.
const OpsTraits& cpu_traits();

}  // namespace quire
