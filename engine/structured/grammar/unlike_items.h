#pragma once
// Lists whose items may be any of endlessly many texts, and no two alike: which have come is part
// of a place. A place behind such an item knows the items before it and what has been read of it;
// from there on the comma leads to an item that is none of them. Places are made when a text comes
// there, so only what is written costs anything.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "engine/structured/grammar/network.h"

namespace quire::structured {

class UnlikeItems {
 public:
  UnlikeItems(Network& network, RegexStore& store) : network_(network), store_(store) {}

  // The numbers of such places. Those of the network lie below.
  static constexpr StateId kFirst = 0x80000000, kEnd = 0xf0000000;

  // Where a lexeme that leads to `target` goes on: a place of its own for each list that begins.
  StateId entered(StateId target);
  // The same place with one more byte read of its item.
  StateId written(StateId place, std::uint8_t byte);
  static bool is_own(StateId place) { return place >= kFirst && place < kEnd; }
  const Network::Closure& closure(StateId place);
  std::size_t size() const { return places_.size() + texts_.size() + sets_.size(); }

 private:
  struct Place {
    StateId state;       // of the network: behind an item or before one
    std::uint32_t set;   // the items that are complete
    std::uint32_t text;  // of the one that is being read
    auto operator<=>(const Place&) const = default;
  };
  struct Text {
    std::uint32_t before;
    std::uint8_t byte;
    auto operator<=>(const Text&) const = default;
  };
  struct Set {
    std::uint32_t before, count;
    RegexId item;
  };

  StateId place(Place place);
  std::uint32_t with(std::uint32_t set, RegexId item);
  std::string text_of(std::uint32_t text) const;
  RegexId others(RegexId item, std::uint32_t set);  // `item`, but for those of the set
  Network::Closure behind_item(const Place& place);
  Network::Closure before_item(const Place& place);

  Network& network_;
  RegexStore& store_;
  std::vector<Place> places_;
  std::vector<std::unique_ptr<const Network::Closure>> closures_;
  std::map<Place, StateId> place_ids_;
  std::vector<Text> texts_{{0, 0}};  // the first is empty
  std::map<Text, std::uint32_t> text_ids_;
  std::vector<Set> sets_{{0, 0, kNothing}};  // the first is empty
  std::map<std::pair<std::uint32_t, RegexId>, std::uint32_t> set_ids_;
};

}  // namespace quire::structured
