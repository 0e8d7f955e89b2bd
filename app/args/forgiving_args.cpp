#include "app/args/forgiving_args.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>

#include "app/args/dotted_members.h"
#include "app/args/flag_advice.h"
#include "app/args/flag_meaning.h"
#include "app/args/flags_file.h"
#include "app/args/foreign_flags.h"
#include "base/flag_words.h"

namespace quire {

namespace {

bool is_json(const CLI::Option& option) { return option.get_type_name() == "JSON"; }

bool is_list(const CLI::Option& option) {
  return option.get_items_expected_max() > 1 && !is_json(option);
}
// Of words, not of numbers, of which [1,2] is a list as well.
bool is_list_of_words(const CLI::Option& option) {
  return is_list(option) && !option.get_type_name().starts_with("INT");
}

// A word that begins with a dash and is no number, as it was meant: --max_model_len=8k is
// --max-model-len=8k, -tp is --tensor-parallel-size, -cc.mode=3 is "mode" of --compilation-config.
struct Flag {
  explicit Flag(std::string_view word);
  std::string shown() const { return name + (path.empty() ? "" : "." + path); }

  std::string name;
  std::string path;   // after the first dot
  std::string value;  // after "="
  bool has_value = false;
};

Flag::Flag(std::string_view word) : name(flag_name(word)), has_value(name.size() < word.size()) {
  if (has_value) value = word.substr(name.size() + 1);
  if (const auto dot = name.find('.'); dot != name.npos) {
    path = name.substr(dot + 1);
    name.resize(dot);
  }
  if (name.starts_with("--")) std::ranges::replace(name, '_', '-');
  if (const auto own = own_name(name)) name = *own;
  if (name == "-O" && !path.empty()) name = "--compilation-config";  // as vLLM once had it
}

bool begins_flag(std::string_view word) {
  if (!word.starts_with('-') || word == "-" || word == "--") return false;
  const bool is_number = word.size() > 1 && (word[1] == '.' || (word[1] >= '0' && word[1] <= '9'));
  return !is_number;
}

FlagWord kind_of(const CLI::App& app, std::string_view word) {
  if (!begins_flag(word)) return FlagWord::none;
  const Flag flag(word);
  const FlagMeaning meaning = meaning_of(app, flag.name);
  const bool is_short_name = !word.starts_with("--") && flag.name.starts_with("--");
  if (!meaning.is_known() && !is_short_name && advice_instead_of(flag.name).empty())
    return FlagWord::none;
  return meaning.takes_value() ? FlagWord::with_value : FlagWord::alone;
}

bool is_no(std::string_view value) { return value == "false" || value == "False"; }

[[noreturn]] void refuse_unknown(const CLI::App& app, const Flag& flag) {
  throw CLI::ValidationError(flag.shown(),
                             "no such flag" + flag_hint(app, flag.name, "; --help lists them"));
}

// Goes through a command line, flag by flag.
class Reader {
 public:
  Reader(const CLI::App& app, std::vector<std::string> words)
      : app_(app), words_(std::move(words)) {}
  void read();

  std::vector<std::string> texts;
  std::vector<std::string> without_effect;

 private:
  struct Object {
    std::string flag;
    const CLI::Option* own;
    const ForeignFlag* foreign;
    std::vector<std::pair<std::string, std::string>> members = {};  // path and value
  };
  void take(Flag flag);
  void refuse_truth_behind(const Flag& flag) const;
  void take_own(const Flag& flag, const CLI::Option& option);
  void give(const CLI::Option& option, std::vector<std::string> words);
  void take_foreign(const Flag& flag, const ForeignFlag& foreign);
  void take_member(const Flag& flag, const CLI::Option* own, const ForeignFlag* foreign);
  void give_objects();
  std::string value_of(const Flag& flag) { return flag.has_value ? flag.value : words_[++at_]; }

  const CLI::App& app_;
  std::vector<std::string> words_;
  std::size_t at_ = 0;
  std::vector<Object> objects_;  // of dotted flags
  // What of `texts` is a flag that has one value.
  struct Given {
    const CLI::Option* option;
    std::size_t at, count;
  };
  std::vector<Given> given_;
};

void Reader::read() {
  const MissingValue missing =
      missing_value(words_, [this](std::string_view name) { return kind_of(app_, name); });
  if (!missing.flag.empty()) {
    const std::string where = missing.before.empty() ? "" : " before " + missing.before;
    throw CLI::ValidationError(Flag(missing.flag).shown(), "needs a value" + where);
  }
  for (; at_ < words_.size() && words_[at_] != "--"; ++at_) {
    if (words_[at_] == "-h" || words_[at_] == "--help") {
      texts = {"--help"};
      return;
    }
    if (begins_flag(words_[at_])) {
      take(Flag(words_[at_]));
    } else {
      texts.push_back(words_[at_]);
    }
  }
  give_objects();
  for (; at_ < words_.size(); ++at_) texts.push_back(words_[at_]);
}

void Reader::take(Flag flag) {
  const FlagMeaning meaning = meaning_of(app_, flag.name);
  if (!meaning.is_known() && flag.has_value && flag.path.empty() &&
      is_switch_that_is_off(flag.name) && is_no(flag.value))
    return without_effect.push_back(flag.name);
  if (!meaning.is_known()) refuse_unknown(app_, flag);
  if (meaning.is_negated() && !flag.path.empty()) refuse_unknown(app_, flag);
  if (!meaning.takes_value() && !flag.has_value) refuse_truth_behind(flag);
  if (meaning.is_negated() && flag.has_value)
    throw CLI::ValidationError(flag.shown(), "takes no value");
  if (meaning.is_negated() && meaning.option != nullptr) {
    texts.push_back(meaning.denied + "=false");
  } else if (meaning.is_negated()) {
    without_effect.push_back(flag.name);
  } else if (meaning.option != nullptr) {
    take_own(flag, *meaning.option);
  } else {
    take_foreign(flag, *meaning.foreign);
  }
}

// Which would else be taken for MODEL.
void Reader::refuse_truth_behind(const Flag& flag) const {
  if (at_ + 1 == words_.size() || !flag.name.starts_with("--")) return;
  const std::string& next = words_[at_ + 1];
  const std::string plain = flag.name.substr(flag.name.starts_with("--no-") ? 5 : 2);
  const std::string opposite = (flag.name == "--" + plain ? "--no-" : "--") + plain;
  if (is_no(next))
    throw CLI::ValidationError(flag.name, "takes no value; instead of " + next + " write " + opposite);
  if (next == "true" || next == "True")
    throw CLI::ValidationError(flag.name, "takes no value; leave " + next + " out");
}

void Reader::take_own(const Flag& flag, const CLI::Option& option) {
  if (!flag.path.empty()) {
    if (!is_json(option)) refuse_unknown(app_, flag);
    return take_member(flag, &option, nullptr);
  }
  // CLI11 would take -q=int8 for -q with the value "=int8", and for --api-key= the word that
  // follows.
  const bool is_short = !flag.name.starts_with("--");
  if (flag.has_value && !is_short && (is_switch(option) || !flag.value.empty()) &&
      !is_json(option)) {
    return give(option, {flag.name + "=" + flag.value});
  }
  std::vector<std::string> words{flag.name};
  if (!is_switch(option)) words.push_back(value_of(flag));
  if (is_json(option) && words.back() == "null") words.clear();  // as if it were not there
  give(option, std::move(words));
  if (!is_list_of_words(option)) return;
  while (at_ + 1 < words_.size() && words_[at_ + 1] != "--" && !begins_flag(words_[at_ + 1]))
    give(option, {flag.name, words_[++at_]});
}

// Of a flag with one value the last counts, as in vLLM: units append to a command line. It takes
// the first's place, so that a list before that does not go on with what stood behind it.
void Reader::give(const CLI::Option& option, std::vector<std::string> words) {
  const bool is_single = option.get_items_expected_max() == 1 &&
                         option.get_multi_option_policy() != CLI::MultiOptionPolicy::TakeAll;
  const auto earlier = std::ranges::find(given_, &option, &Given::option);
  if (!is_single || earlier == given_.end()) {
    if (is_single) given_.push_back({&option, texts.size(), words.size()});
    texts.insert(texts.end(), words.begin(), words.end());
    return;
  }
  const Given old = std::exchange(*earlier, {&option, earlier->at, words.size()});
  const auto begin = texts.begin() + static_cast<std::ptrdiff_t>(old.at);
  const auto place = texts.erase(begin, begin + static_cast<std::ptrdiff_t>(old.count));
  texts.insert(place, words.begin(), words.end());
  for (auto later = std::next(earlier); later != given_.end(); ++later)
    later->at = later->at - old.count + words.size();
}

void Reader::take_foreign(const Flag& flag, const ForeignFlag& foreign) {
  if (!flag.path.empty()) {
    if (foreign.is_switch()) refuse_unknown(app_, flag);
    return take_member(flag, nullptr, &foreign);
  }
  if (!foreign.is_switch()) {
    foreign.check(value_of(flag));
  } else if (flag.has_value && !is_no(flag.value) && flag.value != "true") {
    throw CLI::ValidationError(flag.name, "\"" + flag.value + "\" is neither true nor false");
  }
  while (foreign.is_list() && !flag.has_value && at_ + 1 < words_.size() &&
         words_[at_ + 1] != "--" && !begins_flag(words_[at_ + 1]))
    ++at_;
  without_effect.emplace_back(foreign.name);
}

void Reader::take_member(const Flag& flag, const CLI::Option* own, const ForeignFlag* foreign) {
  auto object = std::ranges::find(objects_, flag.name, &Object::flag);
  if (object == objects_.end()) object = objects_.insert(object, Object{flag.name, own, foreign});
  object->members.emplace_back(flag.path, value_of(flag));
}

void Reader::give_objects() {
  for (const Object& object : objects_) {
    DottedMembers members;
    const auto whole = std::ranges::find(given_, object.own, &Given::option);
    if (object.own != nullptr && whole != given_.end() && whole->count > 0) {
      const std::string& json = texts[whole->at + 1];
      if (!members.set(json))
        throw CLI::ValidationError(object.flag, json + " is no JSON object, and has no members");
    }
    for (const auto& [path, value] : object.members) members.add(path, value);
    if (object.own != nullptr) {
      give(*object.own, {object.flag, members.json()});
    } else {
      object.foreign->check(members.json());
      without_effect.push_back(object.flag);
    }
  }
}

void refuse_surplus(const CLI::App& app) {
  const std::vector<std::string> surplus = app.remaining();
  if (!surplus.empty())
    throw CLI::ValidationError("\"" + surplus.front() + "\"", "one word too many");
}

}  // namespace

ForgivingArgs::ForgivingArgs(const CLI::App& app, int argc, const char* const* given) {
  Reader reader(app, {given + std::min(argc, 1), given + argc});
  reader.read();
  texts_ = std::move(reader.texts);
  if (argc > 0) texts_.insert(texts_.begin(), given[0]);
  without_effect = std::move(reader.without_effect);
  for (const std::string& text : texts_) argv.push_back(text.c_str());
}

std::vector<std::string> parse_forgivingly(CLI::App& app, int argc, const char* const* argv) {
  app.allow_extras();
  // CLI11 would make two keys of --api-key [a,b], and a name of --kv-peer [::1] without brackets.
  for (CLI::Option* option : app.get_options()) {
    if (is_list_of_words(*option)) option->allow_extra_args(false);
  }
  ForgivingArgs args(app, argc, argv);
  if (app.get_config_ptr() != nullptr)
    app.config_formatter(std::make_shared<FlagsFile>(app, args.without_effect));
  app.parse(static_cast<int>(args.argv.size()), args.argv.data());
  refuse_surplus(app);
  return std::move(args.without_effect);
}

}  // namespace quire
