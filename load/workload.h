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
  // Synthetic: words after the shared prefix; the tokens realised are reported.
  int input_words = 64;
  int shared_prefix_words = 0;  // synthetic: the same words first in every prompt
  int output_tokens = 64;       // max_tokens
  // Spread of synthetic lengths: log-normal with this standard deviation of the logarithm, on average
  // the two above; at most eight times them. 0: always the same.
  double length_spread = 0;
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
  int spread(int mean, std::uint64_t index, std::uint64_t salt) const;

  WorkloadOptions options_;
  std::string path_;
  std::vector<Prompt> prompts_;
  std::string shared_prefix_;
};

enum class ArrivalKind : std::uint8_t { poisson, constant, gamma };

// Seconds between arrivals of `rate` requests a second on average. Gamma: `burstiness` is the shape
// of the gaps' distribution; 1 is Poisson, below that requests come in bursts, above more evenly.
class Arrivals {
 public:
  Arrivals(ArrivalKind kind, double rate, double burstiness, std::uint64_t seed)
      : kind_(kind), mean_(1 / rate), gap_(rate), gamma_(burstiness, mean_ / burstiness), random_(seed) {}
  double next_gap() {
    if (kind_ == ArrivalKind::constant) return mean_;
    return kind_ == ArrivalKind::gamma ? gamma_(random_) : gap_(random_);
  }

 private:
  ArrivalKind kind_;
  double mean_;
  std::exponential_distribution<double> gap_;
  std::gamma_distribution<double> gamma_;
  std::mt19937_64 random_;
};

}  // namespace quire::load
