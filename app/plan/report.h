#pragma once
// What `quire plan` prints: a plan as a page for people or as JSON.

#include <string>

#include "engine/core/engine_plan.h"
#include "engine/wire/messages.h"

namespace quire {

struct PlanReport {
  std::string model;              // the path
  std::string architecture = {};  // this and what follows: empty where the flags alone are refused
  std::string dtype = {};
  std::string quantization = {};  // quant_method of the weights; empty: none
  bool from_config_alone = false;  // there are no weights, whose headers would say sizes
  std::string device = {};
  int cpu_threads = 0;            // of each engine on this machine; 0: on a GPU, or elsewhere
  std::string why_not_cuda = {};  // where --device auto became cpu
  EngineConfig config;
  PoolingConfig pooling = {};
  EnginePlan plan;
  // Of a described memory: the fewest ranks for which it holds what was asked; 0: not asked, or none.
  int devices_needed = 0;
  int devices_tried = 0;  // where none was enough: up to so many
};

// Share of a group's blocks that holds nothing: padded pages, and tensors that its shorter list of
// layers leaves unused. 0 … 1.
double waste(const KvGroup& group, const WorkerKvPlan& worker);

// What each further token of a long context takes, in the groups that keep every token.
std::int64_t bytes_per_token(const KvPlan& plan);

std::string plan_text(const PlanReport& report);
std::string plan_json(const PlanReport& report);

}  // namespace quire
