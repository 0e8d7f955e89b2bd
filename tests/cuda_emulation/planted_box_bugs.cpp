#include "planted_box_bugs.h"

#include <vector>

#include "cuda/device/roles.cuh"
#include "cuda/device/tma.cuh"
#include "cuda/device/warpgroup.cuh"

using namespace quire::cuda;

namespace {

enum class Bug {
  none,
  wrong_parity,       // of the consumers' wait
  no_expectation,     // a phase ends with the arrival, not with the bytes
  overwritten,        // the producer does not wait for the consumers
  released_early,     // these arrive before they have read
  unfenced_barrier,   // copies may not see it
  uninitialised,      // or it is none
  too_many_arrivals,  // of all lanes where one is counted
  never_awaited,      // the last box lands when the block has ended
  odd_place,          // a box that does not begin at 128 bytes
  wrong_swizzle,      // rows are off by one
};

constexpr int kColumns = 32, kRows = 60, kBoxRows = 16, kBoxes = 4, kStages = 2;
constexpr int kBoxBytes = kBoxRows * kColumns * 4;

struct BoxArgs {
  CUtensorMap map;
  float* out;
};
struct Ring {
  float box[kStages][kBoxRows][kColumns];
  Mbarrier full[kStages], empty[kStages];
};

// One warp brings boxes of 16 rows, another adds their columns, each row by its number; the last
// box hangs over the end.
template <Bug kBug>
__global__ void add_rows(const __grid_constant__ BoxArgs a) {
  release_next_kernel();
  await_previous_kernel();
  DYN_SHARED(ring, Ring);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      if (kBug != Bug::uninitialised) init_barrier(ring->full[s], 1);
      init_barrier(ring->empty[s], 1);
    }
    if (kBug != Bug::unfenced_barrier) fence_async_proxy();
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    for (int t = 0; t < kBoxes; ++t) {
      const int s = t % kStages, parity = t / kStages & 1;
      if (kBug != Bug::overwritten) await_phase(ring->empty[s], parity ^ 1);
      if (lane != 0) continue;
      arrive_expecting(ring->full[s], kBug == Bug::no_expectation ? 0 : kBoxBytes);
      load_box(&ring->box[s][0][kBug == Bug::odd_place ? 4 : 0], a.map, ring->full[s], 0,
               t * kBoxRows);
    }
  } else {
    float sum = 0;
    for (int t = 0; t < kBoxes - (kBug == Bug::never_awaited); ++t) {
      const int s = t % kStages, parity = t / kStages & 1;
      await_phase(ring->full[s], parity ^ (kBug == Bug::wrong_parity ? 1 : 0));
      if (kBug == Bug::released_early && lane == 0) arrive(ring->empty[s]);
      for (int row = 0; row < kBoxRows; ++row) {
        const int chunk = swizzled_chunk(row + (kBug == Bug::wrong_swizzle ? 1 : 0), lane / 4);
        sum += static_cast<float>(t * kBoxRows + row + 1) * ring->box[s][row][chunk * 4 + lane % 4];
      }
      __syncwarp();
      if (kBug != Bug::released_early && (lane == 0 || kBug == Bug::too_many_arrivals))
        arrive(ring->empty[s]);
    }
    a.out[lane] = sum;
  }
}

CUresult encode(CUtensorMap& map, void* data, cuuint64_t stride, cuuint32_t columns,
                cuuint32_t rows) {
  const cuuint64_t dims[] = {kColumns, kRows};
  const cuuint32_t box[] = {columns, rows}, every[] = {1, 1};
  return cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, data, dims, &stride, box,
                                every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

float value(int row, int column) { return static_cast<float>(row * 3 + column * column % 11); }

template <Bug kBug>
int run_ring() {
  std::vector<float> rows(kRows * kColumns), want(kColumns), got(kColumns);
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) {
      rows[static_cast<std::size_t>(r * kColumns + c)] = value(r, c);
      want[static_cast<std::size_t>(c)] += static_cast<float>(r + 1) * value(r, c);
    }
  }
  void *data = nullptr, *out = nullptr;
  cudaMalloc(&data, rows.size() * sizeof(float));
  cudaMalloc(&out, kColumns * sizeof(float));
  cudaMemcpy(data, rows.data(), rows.size() * sizeof(float), cudaMemcpyHostToDevice);
  BoxArgs args{};
  args.out = static_cast<float*>(out);
  if (encode(args.map, data, kColumns * 4, kColumns, kBoxRows) != CUDA_SUCCESS) return 2;
  if (launch(add_rows<kBug>, dim3(1), dim3(64), sizeof(Ring), nullptr, args) != cudaSuccess)
    return 2;
  cudaMemcpy(got.data(), out, kColumns * sizeof(float), cudaMemcpyDeviceToHost);
  return got == want ? 0 : 1;
}

// What the driver refuses.
int make_map(int offset, cuuint64_t stride, cuuint32_t columns, cuuint32_t rows) {
  void* data = nullptr;
  cudaMalloc(&data, 1 << 16);
  CUtensorMap map;
  return encode(map, static_cast<char*>(data) + offset, stride, columns, rows) == CUDA_SUCCESS ? 0
                                                                                               : 2;
}
int map_of_odd_address() { return make_map(8, 128, 32, 16); }
int map_of_odd_stride() { return make_map(0, 136, 32, 16); }
int map_of_large_box() { return make_map(0, 128, 32, 257); }
int map_of_wide_rows() { return make_map(0, 256, 36, 16); }  // wider than the swizzle
int map_of_narrow_rows() { return make_map(0, 128, 3, 16); }

__global__ void meet_in_two_sizes(float*) {
  release_next_kernel();
  await_previous_kernel();
  meet_at(1, threadIdx.x < 64 ? 128 : 64);
}
__global__ void come_twice(float*) {
  release_next_kernel();
  await_previous_kernel();
  arrive_at(1, 128);
  if (threadIdx.x < 64) arrive_at(1, 128);
  meet_at(2, 128);
}
__global__ void leave_others_waiting(float*) {
  release_next_kernel();
  await_previous_kernel();
  if (threadIdx.x < 64) arrive_at(3, 128);
}
__global__ void take_what_nobody_gave(float*) {
  release_next_kernel();
  await_previous_kernel();
  if (threadIdx.x < 128) return take_registers<240>();
  take_registers<176>();
}
// Two groups in turn, with registers that a third gave: the right way.
__global__ void take_turns(float* out) {
  release_next_kernel();
  await_previous_kernel();
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (group == 0) return give_registers<24>();
  take_registers<240>();
  for (int turn = 0; turn < 3; ++turn) {
    if (group == 1 && turn > 0) meet_at(2, 256);
    if (group == 2) meet_at(1, 256);
    if (threadIdx.x % 128 == 0) out[0] = out[0] * 2 + static_cast<float>(group);
    if (group == 1) arrive_at(1, 256);
    if (group == 2 && turn < 2) arrive_at(2, 256);
  }
}

template <void (*kKernel)(float*), int kThreads>
int run_threads() {
  void* out = nullptr;
  cudaMalloc(&out, 32 * sizeof(float));
  if (launch(kKernel, dim3(1), dim3(kThreads), 0, nullptr, static_cast<float*>(out)) != cudaSuccess)
    return 2;
  return cudaDeviceSynchronize() == cudaSuccess ? 0 : 2;
}

int run_turns() {
  const float zero = 0;
  float got = 0;
  void* out = nullptr;
  cudaMalloc(&out, sizeof got);
  cudaMemcpy(out, &zero, sizeof zero, cudaMemcpyHostToDevice);
  if (launch(take_turns, dim3(1), dim3(384), 0, nullptr, static_cast<float*>(out)) != cudaSuccess)
    return 2;
  cudaMemcpy(&got, out, sizeof got, cudaMemcpyDeviceToHost);
  return got == 84 ? 0 : 1;  // 1, 2, 1, 2, 1, 2
}

const std::map<std::string, BoxBug> kBugs = {
    {"boxes_right", run_ring<Bug::none>},
    {"box_wrong_parity", run_ring<Bug::wrong_parity>},
    {"box_no_expectation", run_ring<Bug::no_expectation>},
    {"box_overwritten", run_ring<Bug::overwritten>},
    {"box_released_early", run_ring<Bug::released_early>},
    {"box_unfenced_barrier", run_ring<Bug::unfenced_barrier>},
    {"box_uninitialised_barrier", run_ring<Bug::uninitialised>},
    {"box_too_many_arrivals", run_ring<Bug::too_many_arrivals>},
    {"box_never_awaited", run_ring<Bug::never_awaited>},
    {"box_odd_place", run_ring<Bug::odd_place>},
    {"box_wrong_swizzle", run_ring<Bug::wrong_swizzle>},
    {"map_of_odd_address", map_of_odd_address},
    {"map_of_odd_stride", map_of_odd_stride},
    {"map_of_large_box", map_of_large_box},
    {"map_of_wide_rows", map_of_wide_rows},
    {"map_of_narrow_rows", map_of_narrow_rows},
    {"turns_right", run_turns},
    {"meet_in_two_sizes", run_threads<meet_in_two_sizes, 128>},
    {"come_twice", run_threads<come_twice, 128>},
    {"leave_others_waiting", run_threads<leave_others_waiting, 128>},
    {"take_what_nobody_gave", run_threads<take_what_nobody_gave, 384>},
};

}  // namespace

const std::map<std::string, BoxBug>& box_bugs() { return kBugs; }
