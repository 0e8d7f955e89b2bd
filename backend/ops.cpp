#include "backend/ops.h"

#include <string>

#include "base/error.h"

namespace quire {
namespace {

[[noreturn]] void unsupported(const char* name) {
  throw Failure(ErrorCode::unsupported, "this backend has no operator " + std::string(name));
}

}  // namespace

void Ops::copy(TensorView, TensorView, StreamRef) { unsupported("copy"); }
void Ops::soft_cap(TensorView, float, StreamRef) { unsupported("soft_cap"); }
void Ops::activation(TensorView, TensorView, Activation, StreamRef) { unsupported("activation"); }
void Ops::sigmoid_gate(TensorView, TensorView, StreamRef) { unsupported("sigmoid_gate"); }
void Ops::head_linear(TensorView, TensorView, TensorView, StreamRef) { unsupported("head_linear"); }
void Ops::quantized_linear(TensorView, TensorView, const Weight&, TensorView, TensorView,
                           StreamRef) {
  unsupported("quantized_linear");
}
void Ops::mla_attention(const MlaArgs&, StreamRef) { unsupported("mla_attention"); }
void Ops::moe_route(const MoeRouteArgs&, StreamRef) { unsupported("moe_route"); }
void Ops::moe_experts(const MoeExpertsArgs&, StreamRef) { unsupported("moe_experts"); }
std::size_t OpsTraits::linear_workspace_bytes(std::int64_t, const Weight&, DType) const {
  return 0;
}
std::size_t OpsTraits::moe_workspace_bytes(int, const MoeShape&) const {
  unsupported("moe_workspace_bytes");
}
void Ops::causal_conv(const ConvArgs&, StreamRef) { unsupported("causal_conv"); }
void Ops::gated_delta_rule(const DeltaRuleArgs&, StreamRef) { unsupported("gated_delta_rule"); }
void Ops::selective_scan(const ScanArgs&, StreamRef) { unsupported("selective_scan"); }
void Ops::gated_rms_norm(TensorView, TensorView, TensorView, TensorView, float, bool, StreamRef) {
  unsupported("gated_rms_norm");
}
void Ops::copy_blocks(TensorView, TensorView, TensorView, StreamRef) { unsupported("copy_blocks"); }
void Ops::zero_blocks(TensorView, TensorView, StreamRef) { unsupported("zero_blocks"); }
void Ops::write_block_tables(std::span<const TableGroup>, const TableWrites&, StreamRef) {
  unsupported("write_block_tables");
}
void Ops::gather_block_tables(std::span<const TableGroup>, const TableRows&, StreamRef) {
  unsupported("gather_block_tables");
}
void Ops::slot_mapping(std::span<const TableGroup>, const TableRows&, const ContextParallel&,
                       StreamRef) {
  unsupported("slot_mapping");
}

}  // namespace quire
