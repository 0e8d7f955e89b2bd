#pragma once
// Reference versions of what cuda/device/roles.cuh has.

#include "cuda/device/roles.cuh"
#include "kernel.h"

namespace quire::cuda {

inline void meet_at(int id, int threads, EMULATION_SITE) {
  if (!emulation::deleted(EMULATION_HERE("meet_at")))
    emulation::named_barrier(id, threads, true, EMULATION_HERE("meet_at"));
}
inline void arrive_at(int id, int threads, EMULATION_SITE) {
  if (!emulation::deleted(EMULATION_HERE("arrive_at")))
    emulation::named_barrier(id, threads, false, EMULATION_HERE("arrive_at"));
}
inline bool is_elected(EMULATION_SITE) {
  return emulation::vote(~0u, emulation::Vote::ballot, 1, false, EMULATION_HERE("is_elected")) &&
         emulation::lane_id() == 0;
}
template <int kRegisters>
void give_registers(EMULATION_SITE) {
  emulation::set_registers(kRegisters, false, EMULATION_HERE("give_registers"));
}
template <int kRegisters>
void take_registers(EMULATION_SITE) {
  emulation::set_registers(kRegisters, true, EMULATION_HERE("take_registers"));
}

}  // namespace quire::cuda
