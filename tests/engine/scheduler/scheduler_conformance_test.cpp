#include <catch2/catch.hpp>
#include <deque>
#include <map>
#include <set>

#include "engine/scheduler/scheduler.h"
#include "tests/engine/scheduler/scheduler_vectors.h"
#include "tests/support/conformance.h"

namespace quire {
namespace {

using namespace quire::test;
using simdjson::dom::element;

// What the model "computed" for one plan, as the runner would hand it over.
struct Tokens {
  Tokens(const BatchPlan& plan, element step) {
    width = widest(step, "sampled");
    draft_width = widest(step, "drafts");
    fill(plan, step, "sampled", width, sampled);
    fill(plan, step, "drafts", draft_width, drafts);
  }

  static int widest(element step, std::string_view field) {
    std::size_t width = 1;
    if (!has(step, field)) return 1;
    for (const auto [id, list] : step[field].get_object()) {
      width = std::max(width, list.get_array().size());
    }
    return static_cast<int>(width);
  }

  static void fill(const BatchPlan& plan, element step, std::string_view field, int width,
                   std::vector<TokenId>& out) {
    out.assign(plan.rows.size() * static_cast<std::size_t>(width), -1);
    if (!has(step, field)) return;
    for (const auto [id, list] : step[field].get_object()) {
      const auto tokens = ints(list);
      for (std::size_t row = 0; row < plan.rows.size(); ++row) {
        if (name_of_id(plan.rows[row].request->id()) != id) continue;
        std::copy(tokens.begin(), tokens.end(), out.begin() + static_cast<long>(row) * width);
      }
    }
  }

  StepTokens view() const { return {sampled, width, drafts, draft_width}; }

  int width = 1, draft_width = 1;
  std::vector<TokenId> sampled, drafts;
};

class Trace {
 public:
  explicit Trace(element vector_case)
      : case_(vector_case),
        kv_(kv_config(vector_case["config"])),
        options_(options_of(vector_case["config"])),
        scheduler_(options_, kv_, has(vector_case["config"], "connector") ? &connector_ : nullptr) {
  }

  void run() {
    for (const element step : case_["steps"].get_array()) {
      try {
        run_step(step);
      } catch (const CutShort&) {
        throw;
      } catch (const std::exception& error) {
        throw std::runtime_error("step " + std::to_string(int_or(step, "step", -1)) + ": " +
                                 error.what());
      }
    }
    if (bool_or(case_, "finished_all", false)) {
      expect_equal(
          "requests left", 0,
          static_cast<int>(scheduler_.stats().num_running + scheduler_.stats().num_waiting));
    }
    if (has(case_, "num_matched_calls")) {
      expect_equal("num_matched_calls", int_or(case_, "num_matched_calls", 0),
                   connector_.num_matched_calls);
    }
  }

 private:
  void run_step(element step) {
    const int now = int_or(step, "step", 0);
    arrive_and_leave(now);
    connector_.step = now;
    const BatchPlan& plan = scheduler_.schedule();
    check_plan(step, plan);
    check_queues("after_schedule", step["after_schedule"]);
    in_flight_.push_back({now, &plan});
    if (!has(step, "update_of_step")) return;
    const int committed = int_or(step, "update_of_step", 0);
    while (in_flight_.front().first < committed) commit_empty();
    commit(step);
  }

  void arrive_and_leave(int now) {
    int index = 0;
    for (const element request : case_["requests"].get_array()) {
      if (int_or(request, "step", 0) == now) {
        RequestInit init = init_of(request, index);
        connector_.scripts[init.id] = script_of(request);
        const auto added = scheduler_.add(std::move(init));
        if (!added) throw std::runtime_error("refused: " + added.error().detail);
      }
      ++index;
    }
    for (const element request : case_["requests"].get_array()) {
      if (int_or(request, "abort_step", -1) == now) scheduler_.abort(id_of(request["id"]));
    }
  }

  void check_plan(element step, const BatchPlan& plan) {
    std::string expected, actual, drafts;
    for (const element row : step["scheduled"].get_array()) {
      expected += std::string(std::string_view(row.at(0))) + ":" +
                  std::to_string(std::int64_t(row.at(1))) + " ";
    }
    for (const BatchRow& row : plan.rows) {
      actual += name_of_id(row.request->id()) + ":" + std::to_string(row.num_tokens) + " ";
    }
    expect_equal("scheduled", expected, actual);
    for (std::size_t i = 0; i < plan.rows.size(); ++i) check_row(step, plan, static_cast<int>(i));
    check_ids("preempted", step, plan.preempted);
    check_ids("finished_since_last", step, plan.finished);
    const auto zero =
        has(step, "zero_block_ids") ? ints(step["zero_block_ids"]) : std::vector<int>{};
    expect_equal("zero_block_ids", text(zero), text(plan.zero_blocks));
    std::vector<int> common(static_cast<std::size_t>(kv_.num_groups()));
    if (has(step, "common_prefix_blocks")) common = ints(step["common_prefix_blocks"]);
    if (plan.rows.empty()) return;
    std::vector<int> actual_common;
    for (int g = 0; g < kv_.num_groups(); ++g)
      actual_common.push_back(kv_.num_common_prefix_blocks(*plan.rows.front().request, g));
    expect_equal("common_prefix_blocks", text(common), text(actual_common));
  }

  void check_row(element step, const BatchPlan& plan, int index) {
    const BatchRow& row = plan.rows[index];
    const std::string id = name_of_id(row.request->id());
    const bool first_time = seen_.insert(row.request->id()).second;
    const std::string kind = first_time ? "new" : "cached";
    if (!has(step, kind) || !has(step[kind], id)) {
      throw std::runtime_error(id + " should not be " + kind);
    }
    const element entry = step[kind][id];
    // The reference took a hit that one of the groups does not have; here it is shorter.
    if (flagged_ && int_or(entry, "num_computed_tokens", 0) > row.num_computed) {
      throw CutShort{};
    }
    const std::string blocks = first_time ? "block_ids" : "new_block_ids";
    expect_equal(id + " " + blocks, has(entry, blocks) ? text(int_lists(entry[blocks])) : "",
                 updates_of(plan, index));
    expect_equal(id + " num_computed", int_or(entry, "num_computed_tokens", 0), row.num_computed);
    if (!first_time) {
      expect_equal(id + " resumed", bool_or(entry, "resumed", false), row.is_new);
      const int planned = options_.async && row.samples ? 1 + row.num_drafts : 0;
      expect_equal(id + " num_output", int_or(entry, "num_output_tokens", 0),
                   row.request->num_output() + row.request->num_placeholders - planned);
    }
    const bool drafted = has(step, "spec") && has(step["spec"], id);
    expect_equal(id + " spec", drafted ? text(ints(step["spec"][id])) : "",
                 text(plan.drafts_of(row)));
  }

  std::string updates_of(const BatchPlan& plan, int row) const {
    std::vector<std::vector<int>> lists(static_cast<std::size_t>(kv_.num_groups()));
    bool any = false;
    for (const BlockUpdate& update : plan.block_updates) {
      if (update.row != row) continue;
      const auto ids = plan.ids_of(update);
      lists[update.group].assign(ids.begin(), ids.end());
      any = true;
    }
    return any ? text(lists) : "";
  }

  void check_ids(std::string_view field, element step, std::vector<RequestId> actual) {
    std::vector<std::string> expected, names;
    if (has(step, field)) {
      for (const element id : step[field].get_array()) {
        expected.emplace_back(std::string_view(id));
      }
    }
    for (const RequestId id : actual) names.push_back(name_of_id(id));
    std::sort(expected.begin(), expected.end());
    std::sort(names.begin(), names.end());
    expect_equal(field, joined(expected), joined(names));
  }

  static std::string joined(const std::vector<std::string>& list) {
    std::string line;
    for (const std::string& item : list) line += item + " ";
    return line;
  }

  static std::string names(element list) {
    std::string line;
    for (const element id : list.get_array()) line += std::string(std::string_view(id)) + " ";
    return line;
  }

  static std::string names(const RequestQueue& queue) {
    std::string line;
    queue.for_each([&](const Request& request) { line += name_of_id(request.id()) + " "; });
    return line;
  }

  void check_queues(const std::string& when, element state) {
    std::string running;
    for (const Request* request : scheduler_.running()) running += name_of_id(request->id()) + " ";
    expect_equal(when + " running", names(state["running"]), running);
    expect_equal(when + " waiting", names(state["waiting"]), names(scheduler_.waiting()));
    expect_equal(when + " skipped_waiting", names(state["skipped_waiting"]),
                 names(scheduler_.deferred()));
    for (const auto [id, computed] : state["computed"].get_object()) {
      const Request* request = scheduler_.find(id_of(id));
      if (request == nullptr) throw std::runtime_error(when + ": " + std::string(id) + " is gone");
      expect_equal(when + " computed of " + std::string(id), std::int64_t(computed),
                   request->num_computed);
    }
    expect_equal(when + " free_blocks", int_or(state, "free_blocks", 0), kv_.pool().num_free());
  }

  void commit_empty() {
    const auto [step, plan] = in_flight_.front();
    in_flight_.pop_front();
    expect_equal("rows of a step without result", 0, static_cast<int>(plan->rows.size()));
    scheduler_.commit(*plan, {});
  }

  void commit(element step) {
    const BatchPlan& plan = *in_flight_.front().second;
    in_flight_.pop_front();
    const Tokens tokens(plan, step);
    const auto ids = [&](std::string_view field) {
      std::vector<RequestId> list;
      if (!has(step, field)) return list;
      for (const element id : step[field].get_array()) list.push_back(id_of(id));
      return list;
    };
    const auto received = ids("finished_recving");
    const auto sent = ids("finished_sending");
    const auto invalid =
        has(step, "invalid_block_ids") ? ints(step["invalid_block_ids"]) : std::vector<int>{};
    const StepResult& result = scheduler_.commit(plan, tokens.view(), {received, sent, invalid});
    check_outputs(step, result);
    if (has(step, "after_update")) check_queues("after_update", step["after_update"]);
  }

  void check_outputs(element step, const StepResult& result) {
    std::map<std::string, std::string> expected, actual;
    if (has(step, "outputs")) {
      for (const auto [id, output] : step["outputs"].get_object()) {
        const auto tokens = has(output, "tokens") ? ints(output["tokens"]) : std::vector<int>{};
        expected[std::string(id)] = text(tokens) + " " + text_or(output, "finish_reason", "-") +
                                    " " + std::to_string(int_or(output, "stop_reason", -1)) +
                                    (bool_or(output, "has_transfer_params", false) ? " kv" : "");
      }
    }
    for (const RequestProgress& progress : result.requests) {
      const Request& request = *progress.request;
      const bool is_eos = progress.stop_token && !request.eos_token_ids().empty() &&
                          *progress.stop_token == request.eos_token_ids().front();
      const int stop = progress.stop_token && !is_eos ? *progress.stop_token : -1;
      actual[name_of_id(request.id())] =
          text(result.tokens_of(progress)) + " " +
          std::string(progress.finish_reason ? name_of(*progress.finish_reason) : "-") + " " +
          std::to_string(stop) + (request.transfer_result.empty() ? "" : " kv");
    }
    const auto lines = [](const std::map<std::string, std::string>& map) {
      std::string all;
      for (const auto& [id, line] : map) all += id + ": " + line + "; ";
      return all;
    };
    expect_equal("outputs", lines(expected), lines(actual));
  }

  element case_;
  bool flagged_ = has_defect(case_, "group_hit_lengths_differ");
  KvCacheManager kv_;
  SchedulerOptions options_;
  ScriptedConnector connector_;
  Scheduler scheduler_;
  std::deque<std::pair<int, const BatchPlan*>> in_flight_;
  std::set<RequestId> seen_;
};

// The reference accepts requests that can never run, and waits forever. Here they are refused, and
// everyone else finishes.
void check_hang(element vector_case) {
  KvCacheManager kv(kv_config(vector_case["config"]));
  Scheduler scheduler(options_of(vector_case["config"]), kv);
  std::set<std::string> hung;
  for (const element id : vector_case["hung_requests"].get_array()) {
    hung.emplace(std::string_view(id));
  }
  int index = 0;
  int refused = 0;
  for (const element request : vector_case["requests"].get_array()) {
    const auto added = scheduler.add(init_of(request, index++));
    if (!added) expect_equal("code", 0, static_cast<int>(added.error().code));
    refused += !added;
  }
  if (refused == 0) throw std::runtime_error("nobody was refused");
  for (int step = 0; scheduler.has_work(); ++step) {
    if (step > 10'000) throw std::runtime_error("still hangs");
    const BatchPlan& plan = scheduler.schedule();
    std::vector<TokenId> sampled;
    for (const BatchRow& row : plan.rows) sampled.push_back(row.samples ? 1 : -1);
    scheduler.commit(plan, {.sampled = sampled});
  }
}

void check_case(element vector_case) {
  if (has_defect(vector_case, "head_of_line_hang")) return check_hang(vector_case);
  Trace(vector_case).run();
}

}  // namespace

TEST_CASE("The scheduler follows every recorded trace", "[scheduler][conformance]") {
  require_conformance("scheduler/1", 90, check_case, 1);
}

}  // namespace quire
