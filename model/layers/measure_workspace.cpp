#include "model/layers/measure_workspace.h"

#include <limits>
#include <vector>

#include "backend/measuring_ops.h"

namespace quire {
namespace {

constexpr std::uintptr_t kNowhere = 4096;  // not null: null means an absent optional input

class NoCollectives final : public Collectives {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce(TensorView, StreamRef) override {}
  void gather_columns(TensorView, TensorView, std::int64_t, StreamRef) override {}
  void broadcast(TensorView, StreamRef) override {}
  void abort() override {}
};

}  // namespace

TensorView unbacked(DType dtype, std::initializer_list<std::int64_t> extents) {
  return {reinterpret_cast<void*>(kNowhere), dtype, extents};
}

std::size_t measure_workspace(const OpsTraits& ops, StreamRef stream, int num_tokens,
                              int num_groups,
                              const std::function<void(const ForwardContext&)>& step) {
  const std::unique_ptr<Ops> measuring = make_measuring_ops(ops);
  NoCollectives collectives;
  Workspace workspace(Buffer(reinterpret_cast<void*>(kNowhere),
                             std::numeric_limits<std::size_t>::max() / 2,
                             [](void*, std::size_t) {}));
  const std::vector<GroupInputs> groups(static_cast<std::size_t>(num_groups),
                                        {.block_table = unbacked(DType::i32, {num_tokens, 1}),
                                         .slots = unbacked(DType::i64, {num_tokens}),
                                         .state_read = unbacked(DType::i32, {num_tokens}),
                                         .state_write = unbacked(DType::i32, {num_tokens})});
  step({.ops = *measuring,
        .stream = stream,
        .workspace = workspace,
        .positions = unbacked(DType::i32, {num_tokens}),
        .query_start = unbacked(DType::i32, {num_tokens + 1}),
        .seq_lens = unbacked(DType::i32, {num_tokens}),
        .max_query_len = num_tokens,
        .max_seq_len = num_tokens,
        .groups = groups,
        .collectives = &collectives});
  return workspace.peak();
}

}  // namespace quire
