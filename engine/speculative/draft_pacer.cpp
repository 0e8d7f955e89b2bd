#include "engine/speculative/draft_pacer.h"

#include <algorithm>
#include <utility>

namespace quire {
namespace {

constexpr double kIntakeWorth = 2;  // of taking a prompt in, which is lost where drafts end early

// What each kind of trial may lose of all time, and the steps from one to the next.
constexpr double kTrialShare = 0.001;
constexpr int kFirstPatience = 128, kLongestPatience = 2048;
constexpr int kRest = 16;  // steps that somebody left out stays so, whatever seems to pay
constexpr int kLookEvery = 8;  // steps, while all are left out
constexpr int kTrialSteps = 3, kFirstTrialSteps = 8, kFewDrafts = 2;
constexpr int kOtherEvery = 128;  // steps: what other numbers of drafts take must stay known
constexpr double kLittle = 0.02;  // of a step
constexpr double kAged = 0.7;     // of what was counted before a trial
// Of the pace without drafts: less is not worth it. A model disturbs more than what is measured.
constexpr double kWorth = 1.04, kWorthOfModel = 1.1;

}  // namespace

DraftPacer::DraftPacer(const DraftPacerOptions& options)
    : options_(options),
      worth_(options.has_model ? kWorthOfModel : kWorth),
      costs_(options.max_drafts),
      slots_(static_cast<std::size_t>(options.max_num_seqs)),
      held_(static_cast<std::size_t>(options.max_drafts)),
      asked_(static_cast<std::size_t>(options.max_drafts)) {
  for (auto& rates : rates_) rates.resize(static_cast<std::size_t>(options.max_drafts));
  for (Slot& slot : slots_) slot.rates.resize(static_cast<std::size_t>(options.max_drafts));
  trial_.patience = first_trial_.patience = kFirstPatience;
}

bool DraftPacer::is_off(int num_running) const {
  return options_.disable_by_batch_size > 0 && num_running > options_.disable_by_batch_size;
}

void DraftPacer::finish(int num_output) {
  constexpr double kAnswers = 32;  // that the mean is of
  ++num_finished_;
  mean_output_ +=
      (num_output - mean_output_) / std::min(static_cast<double>(num_finished_), kAnswers);
}

// Is what drafts save of an answer more than the model's intake of the prompt? The last step finds
// half of its drafts behind the answer's end.
bool DraftPacer::repays(const Outlook& outlook, int num_rows, const Prospect& prospect) const {
  if (outlook.best == 0) return false;
  const double plain = costs_.plain(num_rows);
  if (plain <= 0 || outlook.pace <= 0) return true;  // nothing is known yet
  const double tokens = std::min(mean_output_, static_cast<double>(prospect.most_output));
  const double with = (tokens + (outlook.length - 1) / 2) / outlook.pace;
  const double saved = tokens * plain / num_rows - worth_ * with;
  return saved > kIntakeWorth * costs_.intake(prospect.num_intake);
}

// A model has to take in a prompt before it can be asked, so whether it will be is decided here, by
// what requests have been like.
void DraftPacer::start(int slot_index, int num_running, const Prospect& prospect) {
  Slot& slot = slots_[static_cast<std::size_t>(slot_index)];
  std::ranges::fill(slot.rates, Rate());
  slot = {.rates = std::move(slot.rates), .trial = {.patience = kFirstPatience}};
  if (is_off(num_running)) return;
  if (!options_.adaptive || !options_.has_model) {
    num_resting_ = 0;
    return;
  }
  std::ranges::fill(held_, 0.0);
  std::ranges::fill(asked_, 0.0);
  const int rows = std::max(num_running, 1);
  count(slot, options_.max_drafts);
  for (double& one : held_) one *= rows;
  for (double& one : asked_) one *= rows;
  if (repays(look(rows), rows, prospect)) {
    num_resting_ = 0;
    return;
  }
  // Of one request among others, which has to take in its prompt besides.
  const double loss = price(rows, options_.max_drafts) / rows + costs_.drafting(1, 1) +
                      costs_.intake(prospect.num_intake) / kFirstTrialSteps;
  if (first_trial_.begins(loss * kFirstTrialSteps, 0)) {
    age();
    slot.trial.left = kFirstTrialSteps;
    num_resting_ = 0;
    return;
  }
  slot.is_out = true;
  slot.is_whole = false;
}

// The latest count most: of a request some 25, of all some hundred.
void DraftPacer::settle(int slot_index, int num_drafts, int num_held) {
  Slot& slot = slots_[static_cast<std::size_t>(slot_index)];
  const auto add = [](Rate& rate, bool holds, double memory) {
    rate.held = rate.held * memory + (holds ? 1 : 0);
    rate.tried = rate.tried * memory + 1;
  };
  for (int place = 0; place < std::min(num_held + 1, num_drafts); ++place) {
    const auto at = static_cast<std::size_t>(place);
    add(slot.rates[at], place < num_held, 0.96);
    add(rates_[slot.is_whole][at], place < num_held, 0.99);
  }
}

// Of this request's drafts, and as long as there are few, of everybody's.
double DraftPacer::rate(const Slot& slot, int place) const {
  constexpr double kHope = 0.8, kHopes = 2, kOthers = 6, kLeftOut = 0.6;
  const auto at = static_cast<std::size_t>(place);
  const auto mixed = [](const Rate& seen, double guess, double weight) {
    return (seen.held + weight * guess) / (seen.tried + weight);
  };
  const double whole = mixed(rates_[true][at], kHope, kHopes);
  const double all = slot.is_whole ? whole : mixed(rates_[false][at], kLeftOut * whole, kHopes);
  return mixed(slot.rates[at], all, kOthers);
}

void DraftPacer::count(const Slot& slot, int most) const {
  double holds = 1;
  for (int place = 0; place < most; ++place) {
    holds *= rate(slot, place);
    held_[static_cast<std::size_t>(place)] += holds;
    asked_[static_cast<std::size_t>(place)] += 1;
  }
}

// As if all rows had the same number of drafts.
DraftPacer::Outlook DraftPacer::look(int num_rows) const {
  Outlook outlook;
  const double plain = costs_.plain(num_rows);
  if (plain <= 0) return {.best = options_.max_drafts};  // nothing is known yet
  outlook.pace = num_rows / plain;
  double tokens = num_rows, computed = num_rows;
  for (int drafts = 1; drafts <= options_.max_drafts; ++drafts) {
    const auto at = static_cast<std::size_t>(drafts) - 1;
    if (asked_[at] <= 0) break;
    tokens += held_[at];
    computed += asked_[at];
    const auto drafted = static_cast<int>(asked_[0]);
    const double verify = costs_.drafted(static_cast<int>(computed), 0, 0);
    const double both = costs_.drafted(static_cast<int>(computed), drafted, drafts);
    const double model = costs_.slowness(true) / drafted;  // of a request
    if (drafts == 1 || tokens / both > outlook.pace) {
      outlook.token = std::max(verify - plain, 0.0) / (computed - num_rows);
      outlook.first = model * costs_.drafting(drafted, 1);
      outlook.further =
          drafts > 1 ? std::max((both - verify) / drafted - outlook.first, 0.0) / (drafts - 1) : 0;
    }
    if (tokens / both > outlook.pace) {
      outlook.pace = tokens / both;
      outlook.best = drafts;
      outlook.length = tokens / num_rows;
    }
  }
  return outlook;
}

DraftPacer::Outlook DraftPacer::look_at(std::span<const PacedRow> rows) const {
  std::ranges::fill(held_, 0.0);
  std::ranges::fill(asked_, 0.0);
  int num_rows = 0;
  for (const PacedRow& row : rows) {
    if (row.in_prefill) continue;
    ++num_rows;
    count(slots_[static_cast<std::size_t>(row.slot)], row.most);
  }
  return num_rows > 0 ? look(num_rows) : Outlook();
}

// Seconds that a step with so many drafts for each row is expected to lose, by what was counted.
double DraftPacer::price(int num_rows, int drafts) const {
  const auto at = static_cast<std::size_t>(drafts) - 1;
  double tokens = num_rows, computed = num_rows;
  for (std::size_t i = 0; i <= at; ++i) tokens += held_[i], computed += asked_[i];
  const double took =
      costs_.drafted(static_cast<int>(computed), static_cast<int>(asked_[0]), drafts);
  return std::max(took - costs_.plain(num_rows) * tokens / num_rows, 0.0);
}

// What a trial finds counts more than what was long ago.
void DraftPacer::age() {
  for (auto& rates : rates_)
    for (Rate& rate : rates) rate.held *= kAged, rate.tried *= kAged;
}

// A draft is worth its tokens, and costs the time in which the step makes others.
int DraftPacer::best_for(const Slot& slot, int most, const Outlook& outlook) const {
  int best = 0;
  double holds = 1, gain = 0, best_gain = 0;
  for (int drafts = 1; drafts <= most; ++drafts) {
    holds *= rate(slot, drafts - 1);
    const double model = drafts == 1 ? outlook.first : outlook.further;
    gain += holds - outlook.pace * (outlook.token + model);
    if (gain > best_gain) best = drafts, best_gain = gain;
  }
  return best;
}

// The best number for each row. False: all together they would not pay, and nobody gets any.
bool DraftPacer::find_best(std::span<const PacedRow> rows, std::span<int> best) const {
  const Outlook outlook = look_at(rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Slot& slot = slots_[static_cast<std::size_t>(rows[i].slot)];
    best[i] = rows[i].in_prefill ? 0
              : rows.size() == 1 ? std::min(outlook.best, rows[i].most)
                                 : best_for(slot, rows[i].most, outlook);
  }
  if (pays(rows, best)) return true;
  // What one more token takes holds near the number that is best for all.
  for (int& one : best) one = std::min(one, outlook.best);
  if (outlook.best > 0 && pays(rows, best)) return true;
  std::ranges::fill(best, 0);
  return false;
}

DraftPacer::Expected DraftPacer::expect(std::span<const PacedRow> rows,
                                       std::span<const int> drafts, bool with_ending) const {
  Expected step;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].in_prefill || (rows[i].is_ending && !with_ending)) continue;
    const Slot& slot = slots_[static_cast<std::size_t>(rows[i].slot)];
    double holds = 1;
    for (int place = 0; place < drafts[i]; ++place) step.tokens += holds *= rate(slot, place);
    step.tokens += 1;
    step.num_computed += 1 + std::max(drafts[i], 0);
    ++step.num_rows;
    step.num_drafting += drafts[i] > 0;
    step.most = std::max(step.most, drafts[i]);
  }
  const double plain = step.num_rows > 0 ? costs_.plain(step.num_rows) : 0;
  if (plain <= 0) return step;
  step.with = costs_.drafted(step.num_computed, step.num_drafting, step.most);
  step.without = plain * step.tokens / step.num_rows;
  return step;
}

bool DraftPacer::pays(std::span<const PacedRow> rows, std::span<const int> drafts) const {
  const Expected step = expect(rows, drafts);
  if (step.tokens <= step.num_rows) return false;  // no drafts
  return step.without <= 0 || step.without > worth_ * step.with;
}

void DraftPacer::Trial::wait(double seconds, int steps) {
  waited += steps;
  saved += steps * kTrialShare * seconds;
}

// By turns with few drafts and with all.
bool DraftPacer::Trial::begins(double price, int steps) {
  if (waited < patience || saved < price) return false;
  *this = {
      .patience = std::min(2 * patience, kLongestPatience), .left = steps, .with_few = !with_few};
  return true;
}

int DraftPacer::Trial::drafts(int most) const {
  return with_few ? std::min(most, kFewDrafts) : most;
}

// While drafts pay, steps with another number now and then: none, as many as can be, one more.
std::optional<int> DraftPacer::other_number(int best) {
  if (++since_other_ < kOtherEvery) return {};
  if (since_other_ == kOtherEvery + kTrialSteps) {
    since_other_ = 0;
    other_ = (other_ + 1) % 3;
    return {};
  }
  return other_ == 0 ? 0 : other_ == 1 ? options_.max_drafts : best + 1;
}

int DraftPacer::draft(Slot& slot, int drafts) {
  slot.rested = 0;
  slot.is_out = false;
  return drafts;
}

int DraftPacer::leave_out(Slot& slot) {
  if (!options_.has_model) return 0;
  if (slot.is_whole) std::ranges::fill(slot.rates, Rate());  // they are of what it was
  slot.is_out = true;
  slot.is_whole = false;
  return kLeaveOut;
}

// After look_at().
bool DraftPacer::try_all(int num_rows, int num_steps) {
  const double plain = costs_.plain(num_rows);
  first_trial_.wait(plain, num_steps);
  trial_.wait(plain, num_steps);
  if (trial_.left > 0) return trial_.left-- > 0;
  if (asked_[0] <= 0) return false;
  int most = 0;
  while (most < options_.max_drafts && asked_[static_cast<std::size_t>(most)] > 0) ++most;
  const double loss = price(num_rows, trial_.drafts(most));
  if (!trial_.begins(loss * kTrialSteps, kTrialSteps - 1)) return false;
  age();
  return true;
}

// A request's own trial, of drafts that pay for others.
bool DraftPacer::is_tried(Slot& slot, int most, int num_rows) const {
  if (slot.trial.left > 0) return slot.trial.left-- > 0;
  if (most == 0) return false;
  std::ranges::fill(held_, 0.0);
  std::ranges::fill(asked_, 0.0);
  count(slot, most);
  slot.trial.wait(costs_.plain(num_rows) / num_rows);
  const int drafts = slot.trial.drafts(most);
  return slot.trial.begins(price(1, drafts) * kTrialSteps, kTrialSteps - 1);
}

void DraftPacer::choose(std::span<const PacedRow> rows, int num_running, std::span<int> wanted) {
  if (is_off(num_running)) {
    num_resting_ = options_.has_model ? 2 : 0;
    leave_all_out(rows, wanted);
  } else if (rests()) {
    leave_all_out(rows, wanted);
  } else if (options_.adaptive) {
    adapt(rows, wanted);
  } else {
    // The model takes in what ends, too: later requests may have these blocks.
    for (std::size_t i = 0; i < rows.size(); ++i)
      wanted[i] = rows[i].in_prefill || rows[i].is_ending ? 0 : rows[i].most;
  }
  const bool has_drafts = std::ranges::any_of(wanted, [](int drafts) { return drafts > 0; });
  next_ = has_drafts ? expect(rows, wanted, false)
                     : Expected{.num_computed = static_cast<int>(rows.size())};
  forecast_.with += next_.with;
  forecast_.without += next_.without;
}

// Rows that came or went make it another step than was expected.
void DraftPacer::compare(int num_tokens, double seconds) {
  if (num_tokens == next_.num_computed)
    costs_.compare(next_.most > 0, costs_.step(num_tokens, next_.num_drafting, next_.most),
                   seconds);
}

void DraftPacer::leave_all_out(std::span<const PacedRow> rows, std::span<int> wanted) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    wanted[i] = leave_out(slots_[static_cast<std::size_t>(rows[i].slot)]);
}

bool DraftPacer::rests() {
  if (num_resting_ == 0 || --num_resting_ == 0) return false;
  ++num_rested_;
  return true;
}

void DraftPacer::adapt(std::span<const PacedRow> rows, std::span<int> wanted) {
  const int num_steps = 1 + std::exchange(num_rested_, 0);
  const bool all_pay = find_best(rows, wanted);
  const auto num_rows = static_cast<int>(rows.size());
  const double model = costs_.drafting(num_rows, 1);
  const bool is_little = model > 0 && model < kLittle * costs_.step(num_rows);
  since_unpaid_ = all_pay ? since_unpaid_ + 1 : 0;
  if (since_unpaid_ == kFirstPatience) trial_.patience = first_trial_.patience = kFirstPatience;
  const bool all_try = !all_pay && try_all(num_rows, num_steps);
  const auto other =
      all_pay ? other_number(*std::ranges::max_element(wanted)) : std::optional<int>();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Slot& slot = slots_[static_cast<std::size_t>(rows[i].slot)];
    const int most = rows[i].most;
    const bool seems_vain = wanted[i] == 0 && all_pay;  // though others' are not
    if (rows[i].is_ending)
      wanted[i] = options_.has_model ? kLeaveOut : 0;
    else if (rows[i].in_prefill)
      wanted[i] = slot.is_out ? kLeaveOut : 0;
    else if (other && !slot.is_out)
      wanted[i] = std::min(*other, most);
    else if (all_try)
      wanted[i] = draft(slot, trial_.drafts(most));
    else if ((slot.trial.left > 0 || seems_vain) && is_tried(slot, most, num_rows))
      wanted[i] = draft(slot, slot.trial.drafts(most));
    else if (wanted[i] == 0 && is_little)
      wanted[i] = draft(slot, 0);
    else if (wanted[i] == 0 || (slot.is_out && ++slot.rested < kRest))
      wanted[i] = leave_out(slot);
    else
      wanted[i] = draft(slot, wanted[i]);
  }
  const bool is_out = std::ranges::all_of(wanted, [](int drafts) { return drafts < 0; });
  if (is_out && options_.has_model) num_resting_ = kLookEvery;
}

}  // namespace quire
