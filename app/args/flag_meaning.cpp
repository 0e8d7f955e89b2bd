#include "app/args/flag_meaning.h"

#include <CLI/CLI.hpp>
#include <string_view>
#include <vector>

#include "app/args/flag_advice.h"
#include "app/args/foreign_flags.h"
#include "base/nearest.h"

namespace quire {
namespace {

constexpr std::string_view kNo = "--no-", kEnable = "--enable-", kDisable = "--disable-";

std::string exchanged(const std::string& name, std::string_view prefix, std::string_view other) {
  return std::string(other) + name.substr(prefix.size());
}

// Empty: it says no to nothing.
std::string denied_by(const std::string& name) {
  if (name.starts_with(kNo)) return exchanged(name, kNo, "--");
  if (name.starts_with(kEnable)) return exchanged(name, kEnable, kDisable);
  if (name.starts_with(kDisable)) return exchanged(name, kDisable, kEnable);
  return {};
}

FlagMeaning plain_meaning_of(const CLI::App& app, const std::string& name) {
  if (const CLI::Option* option = app.get_option_no_throw(name)) return {.option = option};
  return {.foreign = find_foreign_flag(name)};
}

enum class Sense { unsaid, yes, no };

Sense sense_of(const std::string& name) {
  const bool is_no = name.starts_with(kNo);
  const std::string said = is_no ? exchanged(name, kNo, "--") : name;
  if (said.starts_with(kDisable)) return is_no ? Sense::yes : Sense::no;
  if (is_no) return Sense::no;
  return said.starts_with(kEnable) ? Sense::yes : Sense::unsaid;
}

// All spellings of the command's flags; --no-… where `flag` begins so.
std::vector<std::string> names_like(const CLI::App& app, const std::string& flag) {
  const bool is_no = flag.starts_with(kNo);
  std::vector<std::string> names;
  const auto add = [&](std::string name) {
    if (name.starts_with(kNo) == is_no) names.push_back(std::move(name));
  };
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      const std::string full = "--" + name;
      add(full);
      if (!is_switch(*option) || full.starts_with(kNo)) continue;
      add(exchanged(full, "--", kNo));
      if (std::string inverse = denied_by(full); !inverse.empty()) add(std::move(inverse));
    }
  }
  return names;
}

}  // namespace

bool is_switch(const CLI::Option& option) { return option.get_items_expected_max() == 0; }

bool FlagMeaning::takes_value() const {
  if (is_negated()) return false;
  return option != nullptr ? !is_switch(*option) : foreign != nullptr && !foreign->is_switch();
}

FlagMeaning meaning_of(const CLI::App& app, const std::string& name) {
  FlagMeaning meaning = plain_meaning_of(app, name);
  if (meaning.is_known() || !advice_instead_of(name).empty()) return meaning;
  std::string denied = denied_by(name);
  if (denied.empty()) return {};
  meaning = plain_meaning_of(app, denied);
  const bool is_of_switch =
      meaning.is_known() ? !meaning.takes_value() : is_switch_that_is_off(denied);
  if (!is_of_switch) return {};
  meaning.denied = std::move(denied);
  return meaning;
}

std::string flag_hint(const CLI::App& app, const std::string& flag, const char* otherwise) {
  if (const auto advice = advice_instead_of(flag); !advice.empty()) return std::string(advice);
  std::vector<std::string> names = names_like(app, flag);
  if (const Sense sense = sense_of(flag); sense != Sense::unsaid) {
    const bool is_no = sense == Sense::no;
    std::erase_if(names,
                  [&](const std::string& name) { return (sense_of(name) == Sense::no) != is_no; });
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  const auto near = nearest(flag, views);
  return near ? ". Did you mean " + std::string(*near) + "?" : otherwise;
}

}  // namespace quire
