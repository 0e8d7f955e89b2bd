#pragma once
// Configurations for random traffic: every kind of group, tiny pools, every option of the
// scheduler.

#include <random>
#include <string>
#include <vector>

#include "engine/scheduler/scheduler.h"
#include "tests/engine/scheduler/simulated_model.h"

namespace quire::test {

struct Layout {
  std::string name;
  std::vector<GroupConfig> groups;
  bool caching = true;
  bool drafts = true;     // may run with drafts
  bool transfers = true;  // may run with a connector
};

const std::vector<Layout>& layouts();

struct Scenario {
  KvCacheConfig kv;
  SchedulerOptions options;
  bool transfers = false;
  DraftRule drafts;
  double arrivals_per_step = 0.5;
};

// num_blocks is what an override would set; the rest is drawn.
Scenario draw_scenario(std::mt19937_64& random, const Layout& layout, int num_blocks);

// The same beside a draft model on a device: what held is known a step late.
Scenario draw_scenario_ahead(std::mt19937_64& random, const Layout& layout, int num_blocks);

int pick(std::mt19937_64& random, int low, int high);
bool chance(std::mt19937_64& random, double probability);

}  // namespace quire::test
