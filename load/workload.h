#pragma once
// What is sent: prompts from a file, of a recorded trace or synthetic, in conversations of one or
// more turns. Immutable; all from one seed.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "load/prompt_file.h"
#include "load/prompt_text.h"
#include "load/trace.h"

namespace quire::load {

struct WorkloadOptions {
  std::filesystem::path prompts = {};    // see prompt_file.h
  std::filesystem::path trace = {};      // see trace.h
  std::filesystem::path tokenizer = {};  // lengths below are tokens of this model; empty: words
  std::string model = {};
  // Synthetic prompts.
  int input_length = 64;         // after the shared prefix
  int shared_prefix_length = 0;  // the same text first in every conversation
  int output_tokens = 64;        // max_tokens
  // Spread of synthetic lengths: log-normal with this standard deviation of the logarithm, on
  // average the two above; at most eight times them. 0: always the same.
  double length_spread = 0;
  // Instead: even from 1 - this to 1 + this times the two above.
  double range_ratio = 0;
  // The user's turns of a conversation; the server's own answers stand between them. Of a file's
  // conversations at most so many.
  int turns = 1;
  bool ignore_eos = false;   // always generate output_tokens
  bool completions = false;  // POST /v1/completions instead of /v1/chat/completions
  double temperature = 0;
  std::uint64_t seed = 0;
};

class Workload {
 public:
  // Throws Failure: a file that cannot be read, a bad line (with its number), options that
  // contradict each other.
  explicit Workload(WorkloadOptions options);

  const std::string& path() const { return path_; }
  // Requests of conversation `index`: one after another, each with the answers to those before.
  int turns(std::uint64_t index) const;
  // The JSON body of the request after so many answers; the same for the same seed.
  std::string body(std::uint64_t index, std::span<const std::string> answers = {}) const;

  const std::vector<TraceRow>& trace() const { return trace_; }  // empty: there is none

 private:
  std::string question(std::uint64_t index, std::size_t turn) const;
  std::string traced_prompt(const TraceRow& row, std::uint64_t index) const;
  std::string messages(std::uint64_t index, std::span<const std::string> answers) const;
  int max_tokens(std::uint64_t index, std::size_t turn) const;
  int spread(int mean, std::uint64_t seed) const;
  std::uint64_t seed_of(std::uint64_t index, std::size_t turn) const;

  WorkloadOptions options_;
  std::string path_;
  PromptText text_;
  std::string shared_prefix_;
  std::vector<FilePrompt> prompts_;
  std::vector<TraceRow> trace_;
};

}  // namespace quire::load
