#include "engine/structured/grammar/unlike_items.h"

#include <algorithm>

namespace quire::structured {

StateId UnlikeItems::place(Place place) {
  const auto [known, is_new] =
      place_ids_.try_emplace(place, kFirst + static_cast<StateId>(places_.size()));
  if (is_new) {
    places_.push_back(place);
    closures_.emplace_back();
  }
  return known->second;
}

StateId UnlikeItems::entered(StateId target) {
  if (is_own(target) || network_.unlike_behind(target) == nullptr) return target;
  return place({target, 0, 0});
}

StateId UnlikeItems::written(StateId own, std::uint8_t byte) {
  Place next = places_[own - kFirst];
  if (network_.unlike_behind(next.state) == nullptr)
    return own;  // before an item: it is the comma that is read
  const auto [known, is_new] =
      text_ids_.try_emplace({next.text, byte}, static_cast<std::uint32_t>(texts_.size()));
  if (is_new) texts_.push_back({next.text, byte});
  next.text = known->second;
  return place(next);
}

std::string UnlikeItems::text_of(std::uint32_t text) const {
  std::string all;
  for (; text != 0; text = texts_[text].before) all += static_cast<char>(texts_[text].byte);
  std::ranges::reverse(all);
  return all;
}

std::uint32_t UnlikeItems::with(std::uint32_t set, RegexId item) {
  const auto [known, is_new] =
      set_ids_.try_emplace({set, item}, static_cast<std::uint32_t>(sets_.size()));
  if (is_new) sets_.push_back({set, sets_[set].count + 1, item});
  return known->second;
}

RegexId UnlikeItems::others(RegexId item, std::uint32_t set) {
  std::vector<RegexId> taken;
  for (; set != 0; set = sets_[set].before) taken.push_back(sets_[set].item);
  const RegexId rest = store_.all_of({item, store_.complement(store_.any_of(std::move(taken)))});
  return store_.alive(rest) ? rest : kNothing;
}

const Network::Closure& UnlikeItems::closure(StateId own) {
  const std::size_t index = own - kFirst;
  if (closures_[index] == nullptr) {
    const Place at = places_[index];
    const bool is_behind = network_.unlike_behind(at.state) != nullptr;
    auto made =
        std::make_unique<const Network::Closure>(is_behind ? behind_item(at) : before_item(at));
    closures_[index] = std::move(made);
  }
  return *closures_[index];
}

Network::Closure UnlikeItems::behind_item(const Place& at) {
  const Rules::Unlike& list = *network_.unlike_behind(at.state);
  const std::uint32_t set = with(at.set, list.same(store_, text_of(at.text)));
  const std::uint32_t count = sets_[set].count;
  Network::Closure result;
  for (Network::Edge edge : network_.closure(at.state).lexemes) {
    const bool is_comma = edge.what == list.comma;
    if (is_comma ? count >= list.max || others(list.item, set) == kNothing : count < list.min)
      continue;
    if (is_comma) edge.target = place({edge.target, set, 0});
    result.lexemes.push_back(edge);
  }
  return result;
}

Network::Closure UnlikeItems::before_item(const Place& at) {
  Network::Closure result;
  for (Network::Edge edge : network_.closure(at.state).lexemes) {
    edge.what = others(edge.what, at.set);
    edge.target = place({edge.target, at.set, 0});
    result.lexemes.push_back(edge);
  }
  return result;
}

}  // namespace quire::structured
