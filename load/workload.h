#pragma once
// What is sent and when: prompts (from a file or synthetic, with a shared prefix) and arrival
// times, from one seed.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace quire::load {

struct WorkloadOptions {
  std::filesystem::path prompts = {};  // JSONL: {"messages": […]} or {"prompt": "…"}, optional
                                       // "max_tokens"; empty: synthetic
  std::string model = {};
  int input_words =
      64;  // synthetic: words after the shared prefix; the tokens realised are reported
  int shared_prefix_words = 0;  // synthetic: the same words first in every prompt
  int output_tokens = 64;       // max_tokens
  bool ignore_eos = false;      // always generate output_tokens
  bool completions = false;     // POST /v1/completions instead of /v1/chat/completions
  double temperature = 0;
  std::uint64_t seed = 0;
};

class Workload {
 public:
  // Throws Failure: unreadable file, bad line (with its number).
  explicit Workload(WorkloadOptions options);

  const std::string& path() const { return path_; }
  // The JSON body of request `index`; the same for the same seed.
  std::string body(std::uint64_t index) const;

 private:
  struct Prompt {
    std::string field;  // "\"messages\":[…]" or "\"prompt\":\"…\""
    std::optional<int> max_tokens;
  };
  std::string synthetic_prompt(std::uint64_t index) const;

  WorkloadOptions options_;
  std::string path_;
  std::vector<Prompt> prompts_;
  std::string shared_prefix_;
};

// Seconds between arrivals of a Poisson process of `rate` requests a second.
class PoissonArrivals {
 public:
  PoissonArrivals(double rate, std::uint64_t seed) : gap_(rate), random_(seed) {}
  double next_gap() { return gap_(random_); }

 private:
  std::exponential_distribution<double> gap_;
  std::mt19937_64 random_;
};

}  // namespace quire::load
