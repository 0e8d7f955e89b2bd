#include <catch2/catch.hpp>

#include <cmath>

#include "tests/engine/kv_plan/plan_vectors.h"
#include "tests/support/conformance.h"

namespace quire {
namespace {

using simdjson::dom::element;
using test::expect_close;
using test::expect_equal;
using test::has_defect;

std::string text(element value) { return std::string(std::string_view(value)); }

// round(bytes / 2^30, 2) in its shortest form, with one digit at least.
std::string gib_text(std::int64_t bytes) {
  const double rounded = std::nearbyint(static_cast<double>(bytes) / (1 << 30) * 100) / 100;
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.2f", rounded);
  std::string shortest = digits;
  if (shortest.ends_with('0')) shortest.pop_back();
  return shortest;
}

std::string joined(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += name + " ";
  return list;
}

std::string joined(simdjson::dom::array names) {
  std::string list;
  for (const element name : names) list += text(name) + " ";
  return list;
}

std::string first_layer(const WorkerKvInput& worker) {
  return worker.layers.empty() ? std::string() : worker.layers.front().layer;
}

// vLLM counts the bytes of a pipeline stage of such models wrongly (defects pool_bytes_mismatch and
// layer_without_tensor), which its refusals do not say.
bool stages_with_page_classes(const KvPlanInput& input) {
  bool windowed_latents = false, stages = false;
  for (const WorkerKvInput& worker : input.workers) {
    stages |= first_layer(worker) != first_layer(input.workers.front());
    for (const LayerKvSpec& layer : worker.layers)
      windowed_latents |= layer.spec.kind == KvKind::sliding_window_mla;
  }
  return windowed_latents && stages;
}

void check_error(element vector_case, element expected, const KvPlanError& error) {
  expect_equal("code", text(expected["code"]), std::string(name_of(error.code)));
  expect_equal("a text", true, !error.detail.empty());
  if (error.code != KvPlanErrorCode::admission) return;
  if (stages_with_page_classes(test::plan_input(vector_case))) return;
  expect_equal("max_model_len", std::int64_t(expected["max_model_len"]), error.max_model_len);
  expect_equal("needed", text(expected["needed_gib_text"]), gib_text(error.needed_bytes));
  expect_equal("available", text(expected["available_gib_text"]), gib_text(error.available_bytes));
  expect_equal("longest by memory", std::int64_t(expected["estimated_max_model_len"]),
               error.memory_max_model_len);
  // The length that we advise must work.
  KvPlanInput shorter = test::plan_input(vector_case);
  shorter.max_model_len = error.estimated_max_model_len;
  if (shorter.max_model_len > 0)
    expect_equal("advice works", true, make_kv_plan(shorter).has_value());
  shorter.max_model_len = error.estimated_max_model_len + 1;
  expect_equal("advice is the longest", true, make_kv_plan(shorter).has_error());
}

void check_groups(element expected, const std::vector<KvGroup>& groups) {
  expect_equal("groups", expected.get_array().size(), groups.size());
  std::size_t i = 0;
  for (const element want : expected.get_array()) {
    const KvGroup& group = groups[i++];
    const bool per_layer = want["per_layer_specs"];
    expect_equal("layers", joined(want["layers"].get_array()), joined(group.layers));
    expect_equal("kind", text(want["kind"]), test::kind_in_vectors(group));
    expect_equal("per_layer_specs", per_layer, group.per_layer_specs);
    expect_equal("block_size", std::int64_t(want["block_size"]), group.block_size);
    expect_equal("is_eagle_group", bool(want["is_eagle_group"]), group.is_eagle_group);
    if (!want["page_size_bytes"].is_null())
      expect_equal("page_size_bytes", std::int64_t(want["page_size_bytes"]), group.page_bytes);
    if (!per_layer || group.layers.empty()) continue;
    std::size_t layer = 0;
    for (const element page : want["layer_page_size_bytes"].get_array())
      expect_equal("layer page", std::int64_t(page), page_bytes(group.layer_specs[layer++]));
  }
}

void check_tensors(element expected, const WorkerKvPlan& worker) {
  expect_equal("tensors", expected["tensors"].get_array().size(), worker.tensors.size());
  std::size_t i = 0;
  for (const element want : expected["tensors"].get_array()) {
    const KvTensor& tensor = worker.tensors[i++];
    expect_equal("tensor size", std::int64_t(want["size"]), tensor.size);
    expect_equal("shared_by", joined(want["shared_by"].get_array()), joined(tensor.shared_by));
  }
  expect_equal("total bytes", std::int64_t(expected["total_tensor_bytes"]), worker.total_bytes());
  if (expected["pool_bytes_per_block"].is_null()) return;
  expect_equal("pool bytes", std::int64_t(expected["pool_bytes_per_block"]),
               worker.pool_bytes_per_block);
}

element worker_in(element vector_case, std::size_t index) {
  const element workers = vector_case["expected"]["workers"], worker = workers.at(index);
  std::int64_t same_as = 0;
  return worker["same_as"].get(same_as) == simdjson::SUCCESS ? element(workers.at(same_as))
                                                             : worker;
}

void check_workers(element vector_case, const KvPlan& plan) {
  const bool other_length = has_defect(vector_case, "null_block_hole");
  for (std::size_t i = 0; i < plan.workers.size(); ++i) {
    const element want = worker_in(vector_case, i);
    const WorkerKvPlan& worker = plan.workers[i];
    check_groups(want["groups"], worker.groups);
    check_tensors(want, worker);
    if (other_length || want["needed_blocks_at_max_model_len"].is_null()) continue;
    expect_equal("needed blocks", std::int64_t(want["needed_blocks_at_max_model_len"]),
                 worker.needed_blocks);
    expect_equal("needed bytes", std::int64_t(want["needed_bytes_at_max_model_len"]),
                 worker.needed_bytes);
  }
}

// Of cases where vLLM's bytes are wrong, whether or not our memory suffices.
void check_groups_only(element vector_case, const KvPlanInput& input) {
  std::vector<LayerKvSpec> layers;
  for (const WorkerKvInput& worker : input.workers)
    layers.insert(layers.end(), worker.layers.begin(), worker.layers.end());
  const auto groups = make_groups(layers, {input.hybrid_manager, input.use_eagle});
  for (std::size_t i = 0; i < input.workers.size(); ++i)
    check_groups(worker_in(vector_case, i)["groups"],
                 project_groups(groups.value(), input.workers[i].layers));
}

void check_scheduler(element vector_case, const KvPlan& plan) {
  const element expected = vector_case["expected"]["scheduler"];
  std::size_t i = 0;
  for (const element size : expected["group_block_sizes"].get_array())
    expect_equal("group block size", std::int64_t(size), plan.groups()[i++].block_size);
  i = 0;
  for (const element page : expected["group_page_size_bytes"].get_array())
    expect_equal("group page", std::int64_t(page), page_bytes(plan.groups()[i++].spec_of(0)));
  if (!has_defect(vector_case, "reported_block_size_not_an_attention_block_size") &&
      !expected["reported_block_size"].is_null())
    expect_equal("reported_block_size", std::int64_t(expected["reported_block_size"]),
                 plan.block_size);
  expect_equal("scheduler_block_size", std::int64_t(expected["scheduler_block_size"]),
               plan.scheduler_block_size);
  expect_equal("hash_block_size", std::int64_t(expected["hash_block_size"]), plan.hash_block_size);
}

void check_capacity(element vector_case, const KvPlan& plan) {
  const element expected = vector_case["expected"];
  if (expected["max_concurrency"].is_null()) return;
  if (has_defect(vector_case, "concurrency_inconsistent_with_admission")) {
    if (!has_defect(vector_case, "null_block_hole"))
      expect_close("consistent_max_concurrency", double(expected["consistent_max_concurrency"]),
                   plan.max_concurrency);
    return;
  }
  if (has_defect(vector_case, "null_block_hole")) return;
  expect_close("max_concurrency", double(expected["max_concurrency"]), plan.max_concurrency);
  expect_equal("kv_cache_size_tokens", std::int64_t(expected["kv_cache_size_tokens"]),
               plan.kv_cache_size_tokens);
}

// Where vLLM accepts a length that needs the null block.
bool check_null_block(element vector_case, const PlanResult<KvPlan>& plan) {
  const element corrected = vector_case["expected"]["corrected"];
  std::int64_t length = 0;
  if (corrected["max_model_len"].get(length) == simdjson::SUCCESS && length > 0) {
    if (plan.has_error()) throw std::runtime_error(plan.error().detail);
    expect_equal("corrected max_model_len", length, plan->max_model_len);
    return true;
  }
  expect_equal("refused", true, plan.has_error());
  if (length > 0 || corrected["estimated_max_model_len"].get(length) != simdjson::SUCCESS)
    return false;
  const bool auto_fit = vector_case["config"]["auto_fit"];
  expect_equal("code", auto_fit ? "autofit_zero" : "admission",
               std::string(name_of(plan.error().code)));
  expect_equal("estimated_max_model_len", length, plan.error().estimated_max_model_len);
  return false;
}

void check_stage_without_layers(const KvPlan& plan) {
  for (const WorkerKvPlan& worker : plan.workers) {
    std::size_t layers = 0;
    for (const KvGroup& group : worker.groups) layers += group.layers.size();
    if (layers == 0) expect_equal("bytes of an empty stage", 0, worker.total_bytes());
  }
}

// What holds of any plan, whatever the vector says.
void check_promises(const KvPlanInput& input, const KvPlan& plan) {
  if (plan.groups().empty()) return;
  const WorkerKvPlan& worker = plan.workers.front();
  expect_equal("max_model_len fits beside the null block", true,
               worker.needed_blocks <= plan.num_blocks - 1);
  expect_equal("largest request", true, plan.largest_request_tokens >= plan.max_model_len);
  for (std::size_t i = 0; i < plan.workers.size(); ++i) {
    const WorkerKvPlan& each = plan.workers[i];
    expect_equal("pool bytes are the tensors'", std::int64_t(each.total_bytes()),
                 std::int64_t(each.pool_bytes_per_block) * plan.num_blocks);
    std::size_t with_tensor = 0, with_group = 0;
    for (const KvTensor& tensor : each.tensors) with_tensor += tensor.shared_by.size();
    for (const KvGroup& group : each.groups) with_group += group.layers.size();
    expect_equal("layers with a tensor", input.workers[i].layers.size(), with_tensor);
    expect_equal("layers with a group", input.workers[i].layers.size(), with_group);
    if (!input.num_gpu_blocks_override)
      expect_equal("within memory", true,
                   std::int64_t(each.total_bytes()) <= input.workers[i].available_bytes);
  }
}

void check_plan(element vector_case) {
  const KvPlanInput input = test::plan_input(vector_case);
  const PlanResult<KvPlan> plan = make_kv_plan(input);
  if (plan.has_value()) check_promises(input, *plan);
  element error;
  const element expected = vector_case["expected"];
  if (has_defect(vector_case, "pool_bytes_mismatch") ||
      has_defect(vector_case, "layer_without_tensor"))
    return check_groups_only(vector_case, input);
  if (has_defect(vector_case, "pp_worker_without_kv_layers")) {
    if (plan.has_error()) throw std::runtime_error(plan.error().detail);
    return check_stage_without_layers(*plan);
  }
  if (expected["error"].get(error) == simdjson::SUCCESS ||
      expected["scheduler"]["error"].get(error) == simdjson::SUCCESS) {
    expect_equal("refused", true, plan.has_error());
    return check_error(vector_case, error, plan.error());
  }
  if (has_defect(vector_case, "null_block_hole")) {
    if (!check_null_block(vector_case, plan)) return;
  } else if (plan.has_error()) {
    throw std::runtime_error(plan.error().detail);
  } else {
    expect_equal("max_model_len", std::int64_t(expected["max_model_len"]), plan->max_model_len);
  }
  expect_equal("num_blocks", std::int64_t(expected["num_blocks"]), plan->num_blocks);
  check_workers(vector_case, *plan);
  check_scheduler(vector_case, *plan);
  check_capacity(vector_case, *plan);
}

}  // namespace

TEST_CASE("The plan's groups, blocks and tensors are vLLM's") {
  test::require_conformance("kv_plan/1", 170, check_plan);
}

}  // namespace quire
