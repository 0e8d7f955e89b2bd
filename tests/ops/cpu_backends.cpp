// The CPU backend once per instruction set that this machine has, with more threads than work and
// alone.

#include "cpu/cpu_backend.h"
#include "tests/support/op_test.h"

namespace quire::test {

std::vector<OpBackend>& op_backends() {
  static std::vector<OpBackend> backends = [] {
    std::vector<OpBackend> list;
    for (const CpuIsa isa :
         {CpuIsa::portable, CpuIsa::avx2, CpuIsa::avx512, CpuIsa::avx512_bf16, CpuIsa::amx_bf16}) {
      if (isa > detect_cpu_isa()) break;
      const int threads = isa == CpuIsa::portable ? 1 : 3;
      list.push_back({std::string("cpu ") + name_of(isa), make_cpu_device(),
                      make_cpu_ops({.threads = threads, .best_isa = isa})});
    }
    return list;
  }();
  return backends;
}

}  // namespace quire::test
