// Rows picked by index: embedding lookup, the hidden states that are sampled. Memory bound; bytes
// are bytes here. A negative index (kNoToken) is row 0.

#include "cuda/device/vec.cuh"
#include "cuda/kernels/launchers.h"
#include "cuda/runtime/check.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 128;

// One block per row, in units of U.
template <class U>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(U* out, const U* table, const std::int32_t* rows, std::int64_t out_stride,
                  std::int64_t table_stride, int units) {
  release_next_kernel();
  await_previous_kernel();
  const U* from = table + static_cast<std::int64_t>(max(rows[blockIdx.x], 0)) * table_stride;
  U* to = out + blockIdx.x * out_stride;
  for (int i = threadIdx.x; i < units; i += kThreads) to[i] = from[i];
}

template <class U>
bool gather_as(TensorView out, TensorView table, TensorView rows, StreamRef stream) {
  const auto size = static_cast<std::int64_t>(size_of(out.dtype()));
  const std::int64_t width = (out.rank() == 1 ? 1 : out.extent(1)) * size;
  const std::int64_t out_stride = out.stride(0) * size, table_stride = table.stride(0) * size;
  if ((width | out_stride | table_stride) % static_cast<std::int64_t>(sizeof(U)) != 0) return false;
  CUDA_CHECK(launch(gather_kernel<U>, dim3(static_cast<unsigned>(out.extent(0))), dim3(kThreads), 0,
                    native(stream), static_cast<U*>(out.data()),
                    static_cast<const U*>(table.data()),
                    static_cast<const std::int32_t*>(rows.data()),
                    out_stride / static_cast<std::int64_t>(sizeof(U)),
                    table_stride / static_cast<std::int64_t>(sizeof(U)),
                    static_cast<int>(width / static_cast<std::int64_t>(sizeof(U)))));
  return true;
}

template <class Out, class Table>
__global__ void __launch_bounds__(kThreads)
    convert_rows_kernel(View<Out, 2> out, View<const Table, 2> table, const std::int32_t* rows) {
  release_next_kernel();
  await_previous_kernel();
  const int row = max(rows[blockIdx.x], 0);
  for (int i = threadIdx.x; i < out.extent[1]; i += kThreads) {
    out(blockIdx.x, i) = Out(static_cast<float>(table(row, i)));
  }
}

// The table begins with row `first` of all.
template <class Out, class Table>
__global__ void __launch_bounds__(kThreads)
    share_rows_kernel(View<Out, 2> out, View<const Table, 2> table, const std::int32_t* rows,
                      std::int64_t first) {
  release_next_kernel();
  await_previous_kernel();
  const std::int64_t row = max(rows[blockIdx.x], 0) - first;
  const bool is_here = 0 <= row && row < table.extent[0];
  for (int i = threadIdx.x; i < out.extent[1]; i += kThreads) {
    out(blockIdx.x, i) = Out(is_here ? static_cast<float>(table(row, i)) : 0.f);
  }
}

}  // namespace

void gather_rows(TensorView out, TensorView x, TensorView rows, StreamRef stream) {
  if (out.numel() == 0) return;
  assert(out.dtype() == x.dtype());
  gather_as<uint4>(out, x, rows, stream) || gather_as<std::uint32_t>(out, x, rows, stream) ||
      gather_as<std::uint16_t>(out, x, rows, stream) ||
      gather_as<std::uint8_t>(out, x, rows, stream);
}

void embedding(TensorView out, TensorView table, TensorView ids, StreamRef stream) {
  if (out.dtype() == table.dtype()) return gather_rows(out, table, ids, stream);
  if (out.numel() == 0) return;
  dispatch_device_float(out.dtype(), [&]<class Out>(Type<Out>) {
    dispatch_device_float(table.dtype(), [&]<class Table>(Type<Table>) {
      CUDA_CHECK(launch(convert_rows_kernel<Out, Table>, dim3(static_cast<unsigned>(out.extent(0))),
                        dim3(kThreads), 0, native(stream), device_view<Out, 2>(out),
                        device_view<const Table, 2>(table),
                        static_cast<const std::int32_t*>(ids.data())));
    });
  });
}

void embedding_share(TensorView out, TensorView table, std::int64_t first, TensorView ids,
                     StreamRef stream) {
  if (out.numel() == 0) return;
  dispatch_device_float(out.dtype(), [&]<class Out>(Type<Out>) {
    dispatch_device_float(table.dtype(), [&]<class Table>(Type<Table>) {
      CUDA_CHECK(launch(share_rows_kernel<Out, Table>, dim3(static_cast<unsigned>(out.extent(0))),
                        dim3(kThreads), 0, native(stream), device_view<Out, 2>(out),
                        device_view<const Table, 2>(table),
                        static_cast<const std::int32_t*>(ids.data()), first));
    });
  });
}

}  // namespace quire::cuda
