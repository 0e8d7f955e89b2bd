#pragma once
// Reference versions of what cuda/device/mbarrier.cuh has.

#include "cuda/device/mbarrier.cuh"
#include "kernel.h"

namespace quire::cuda {

inline void init_barrier(Mbarrier& barrier, int arrivals, EMULATION_SITE) {
  if (!emulation::deleted(EMULATION_HERE("init_barrier")))
    emulation::mbarrier_init(&barrier, arrivals, EMULATION_HERE("init_barrier"));
}
inline void arrive(Mbarrier& barrier, EMULATION_SITE) {
  if (!emulation::deleted(EMULATION_HERE("arrive")))
    emulation::mbarrier_arrive(&barrier, 0, EMULATION_HERE("arrive"));
}
inline void arrive_expecting(Mbarrier& barrier, int bytes, EMULATION_SITE) {
  if (!emulation::deleted(EMULATION_HERE("arrive_expecting")))
    emulation::mbarrier_arrive(&barrier, bytes, EMULATION_HERE("arrive_expecting"));
}
inline void await_phase(const Mbarrier& barrier, int parity, EMULATION_SITE) {
  if (!emulation::deleted(EMULATION_HERE("await_phase")))
    emulation::mbarrier_await(&barrier, parity, EMULATION_HERE("await_phase"));
}

}  // namespace quire::cuda
