#pragma once
// What `quire doctor` found, as a page for people or as JSON.

#include <optional>
#include <string>
#include <vector>

#include "app/doctor/machine_advice.h"
#include "app/doctor/machine_facts.h"
#include "cpu/machine_limits.h"

namespace quire {

// The best of as many probes as fit the time, and how far the usual one stays below it.
struct SpeedProbe {
  MachineLimits best;
  double usual_share = 1;  // median by best, of bytes read a second; 1: nobody else was at it
  int passes = 0;
  double seconds = 0;
};

// What a model of this many parameters takes, and does at most on this machine's CPU.
struct ModelEstimate {
  std::string name;  // "8B in bf16", or a path
  double weight_bytes = 0;
  bool fits = false;          // in the memory that is free, with a fifth of it left for the cache
  double most_generated = 0;  // tokens a second of one request: all weights read for each
  double most_prompt = 0;     // tokens a second
};

struct DoctorReport {
  MachineFacts facts;
  std::vector<Advice> advice;
  std::optional<SpeedProbe> probe;
  std::vector<ModelEstimate> estimates;  // empty without a probe
  std::string model_verdict;             // of MODEL: the plan, in a sentence; empty: none was given
  bool model_fits = true;
};

// Of sizes that models are published in.
std::vector<ModelEstimate> usual_estimates(const MachineFacts& facts, const SpeedProbe& probe);

std::string doctor_text(const DoctorReport& report);
std::string doctor_json(const DoctorReport& report);

}  // namespace quire
