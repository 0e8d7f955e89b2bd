#pragma once
// How many drafts each request gets: as many as bring more tokens a second than they cost, by what
// was accepted of this request's drafts and by what steps of this size take; none where none pay.
// What it decides changes when tokens come, never which. Engine thread only; after construction
// nothing is allocated.
//
// A draft model that leaves a request out has no keys and values of its tokens from then on. It can
// take it up again later: what it proposes then is worse, and is counted apart.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/speculative/draft_costs.h"

namespace quire {

struct DraftPacerOptions {
  int max_num_seqs = 0;  // slots
  int max_drafts = 0;
  bool adaptive = true;           // else as many as there can be
  int disable_by_batch_size = 0;  // none for anybody while more requests run; 0: no limit
  bool has_model = false;         // drafts cost passes of a model
};

// A request that the step's end leaves in its slot.
struct PacedRow {
  std::int32_t slot = 0;
  int most = 0;             // drafts that it can have
  bool in_prefill = false;  // it draws nothing yet
  bool is_ending = false;   // no step will verify drafts for it any more
};

// What a request brings that begins.
struct Prospect {
  int num_intake = 0;           // tokens that a model would have to take in first
  int most_output = 1 << 30;    // tokens
};

// What it expected of the steps that it chose drafts for, by its own table and rates: seconds, and
// those in which steps without drafts make as many tokens. Where the number is fixed nobody
// measures such steps, and it says nothing.
struct DraftForecast {
  double with = 0, without = 0;
};

class DraftPacer {
 public:
  static constexpr int kLeaveOut = -1;

  explicit DraftPacer(const DraftPacerOptions& options);

  // A request begins in this slot; so many run now.
  void start(int slot, int num_running, const Prospect& prospect = {});
  // A request ended with so many tokens drawn.
  void finish(int num_output);
  // It had drafts to verify, and so many of them held.
  void settle(int slot, int num_drafts, int num_held);
  DraftCosts& costs() { return costs_; }
  // A step of what choose() saw, with so many tokens, took so long together with its drafting.
  void compare(int num_tokens, double seconds);

  // wanted[i]: drafts for rows[i]; 0: the model takes its tokens in and proposes nothing;
  // kLeaveOut: not even that. So many requests run.
  void choose(std::span<const PacedRow> rows, int num_running, std::span<int> wanted);
  const DraftForecast& forecast() const { return forecast_; }
  // May a model be asked for drafts behind the step that comes? Where not, nothing that they are
  // made of need be kept.
  bool may_draft() const { return num_resting_ <= 1; }

 private:
  // Of drafts at one place behind the settled tokens, once those before held.
  struct Rate {
    double held = 0, tried = 0;
  };
  // When what does not seem to pay is tried all the same: as often as a small share of all time
  // pays for what a trial is expected to lose.
  struct Trial {
    double saved = 0;  // seconds, for the next
    int patience = 0;  // steps from one to the next, at least
    int waited = 0;    // of them
    int left = 0;      // steps that it still takes
    bool with_few = true;
    void wait(double seconds, int steps = 1);  // of each
    bool begins(double price, int steps);
    int drafts(int most) const;
  };
  struct Slot {
    std::vector<Rate> rates;
    Trial trial;
    int rested = 0;        // steps left out, though drafts seemed to pay
    bool is_out = false;   // left out
    bool is_whole = true;  // the model has all of its tokens
  };
  // What all of this step's rows together are worth, by the number of drafts of each.
  struct Outlook {
    int best = 0;        // drafts
    double pace = 0;     // tokens a second at best
    double length = 1;   // tokens of a row's step at best
    double token = 0;    // seconds of one more token to verify
    double first = 0;    // seconds of a model's first draft for a row
    double further = 0;  // of each further one
  };

  bool is_off(int num_running) const;
  double rate(const Slot& slot, int place) const;
  void count(const Slot& slot, int most) const;
  Outlook look(int num_rows) const;
  Outlook look_at(std::span<const PacedRow> rows) const;
  bool repays(const Outlook& outlook, int num_rows, const Prospect& prospect) const;
  double price(int num_rows, int drafts) const;
  void age();
  int best_for(const Slot& slot, int most, const Outlook& outlook) const;
  bool find_best(std::span<const PacedRow> rows, std::span<int> best) const;
  // Of a step with so many drafts for each row that it has.
  struct Expected {
    double tokens = 0;
    int num_rows = 0;
    int num_computed = 0, num_drafting = 0, most = 0;
    double with = 0, without = 0;  // seconds, for as many tokens; 0: unknown
  };
  Expected expect(std::span<const PacedRow> rows, std::span<const int> drafts,
                  bool with_ending = true) const;
  bool pays(std::span<const PacedRow> rows, std::span<const int> drafts) const;
  std::optional<int> other_number(int best);
  static int draft(Slot& slot, int drafts);
  int leave_out(Slot& slot);
  void adapt(std::span<const PacedRow> rows, std::span<int> wanted);
  void leave_all_out(std::span<const PacedRow> rows, std::span<int> wanted);
  bool rests();
  bool try_all(int num_rows, int num_steps);
  bool is_tried(Slot& slot, int most, int num_rows) const;

  const DraftPacerOptions options_;
  const double worth_;
  DraftCosts costs_;
  std::array<std::vector<Rate>, 2> rates_;  // of all requests, by Slot::is_whole
  std::vector<Slot> slots_;
  mutable std::vector<double> held_, asked_;  // by place: drafts expected to hold, and rows
  DraftForecast forecast_;
  Expected next_;        // of the step that comes
  int num_resting_ = 0;  // steps for which who is left out stays so: it did not pay just now
  int num_rested_ = 0;   // of them that were
  Trial trial_;                               // of everybody
  Trial first_trial_;                         // of requests from their start
  double mean_output_ = 64;  // tokens of an answer; a guess, until there are some
  std::int64_t num_finished_ = 0;
  int since_unpaid_ = 0;                      // steps, since drafts did not pay
  int since_other_ = 0;  // steps, since one had another number of drafts than seemed best
  int other_ = 0;        // which is next
};

}  // namespace quire
