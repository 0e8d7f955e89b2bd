// A thought ends at its budget, with its closing mark, in whatever tokens that has.

#include "engine/structured/thinking_budget.h"

#include <catch2/catch.hpp>

#include "engine/structured/grammar_error.h"

namespace quire::structured {
namespace {

std::shared_ptr<const ForcedClose> forced(std::vector<std::string> bytes, int budget, bool inside,
                                          bool several = false) {
  return std::make_shared<const ForcedClose>(
      ThoughtMarks{budget, {"<t>"}, {"</t>", "!"}, inside, several},
      std::make_shared<const Vocabulary>(std::move(bytes), std::vector<TokenId>()));
}

TEST_CASE("at the limit the closing mark comes, from where it has begun", "[structured][thinking]") {
  ThinkingBudget budget(forced({"a", "<", "/", "t>", "</", "b</"}, 2, true));
  CHECK(budget.forced() == -1);
  budget.accept(0);
  CHECK(budget.forced() == -1);
  budget.accept(5);  // the text ends as the mark begins
  CHECK(budget.forced() == 3);
  budget.accept(3);
  CHECK(budget.forced() == -1);
  for (int i = 0; i < 9; ++i) budget.accept(0);
  CHECK(budget.forced() == -1);
  budget.rollback(10);
  CHECK(budget.forced() == 3);
  budget.rollback(1);
  budget.accept(0);
  CHECK(budget.forced() == 4);
  budget.accept(4);
  CHECK(budget.forced() == 3);
}

TEST_CASE("a mark that is one special token is that token", "[structured][thinking]") {
  ThinkingBudget budget(forced({"a", "<", "\xff</t>", "\xff<t>", " "}, 1, false));
  budget.accept(4);
  CHECK(budget.forced() == -1);
  budget.accept(3);
  CHECK(budget.forced() == -1);
  budget.accept(0);
  CHECK(budget.forced() == 2);
}

TEST_CASE("an answer without a thought is none", "[structured][thinking]") {
  ThinkingBudget budget(forced({"a", "<t>", "</t>"}, 0, false));
  budget.accept(0);
  budget.accept(1);
  CHECK(budget.forced() == -1);
  ThinkingBudget several(forced({"a", "<t>", "</t>"}, 1, false, true));
  for (const TokenId id : {0, 1, 0}) several.accept(id);
  CHECK(several.forced() == 2);
  for (const TokenId id : {2, 0, 1}) several.accept(id);
  CHECK(several.forced() == 2);  // the second thought has nothing left
}

TEST_CASE("marks are read from a structural tag", "[structured][thinking]") {
  CHECK(thought_marks(R"({"format":{"type":"any_text"}})") == nullptr);
  CHECK(thought_marks(R"({"format":{"type":"const_string","value":"\"thinking\""}})") == nullptr);
  const auto marks = thought_marks(
      R"({"format":{},"thinking":{"budget":7,"open":["<t>"],"close":["</t>"],"inside":true,"several":false}})");
  REQUIRE(marks != nullptr);
  CHECK(marks->budget == 7);
  CHECK(marks->starts_inside);
  CHECK_THROWS_AS(thought_marks(R"({"thinking":{"budget":"7"}})"), GrammarFailure);
}

}  // namespace
}  // namespace quire::structured
