// Rows of values without repetition: "value comma value … close", where each value comes once. As
// one expression they would be as large as there are sets of values; here a set becomes an
// expression when a text has written it.

#include <algorithm>

#include "engine/structured/regex/regex_store.h"

namespace quire::structured {
namespace {

std::uint32_t count_of(std::uint64_t set) {
  return static_cast<std::uint32_t>(__builtin_popcountll(set));
}

}  // namespace

RegexId RegexStore::distinct(DistinctRow row) {
  RegexHash hash = mix(Kind::distinct, {row.min, row.max, row.values.size(), row.allowed.size()});
  const auto add = [&](std::uint64_t a, std::uint64_t b) {
    hash = mix(Kind::distinct, {hash.low, hash.high, a, b});
  };
  for (const RegexId part : row.values) add(nodes_[part].hash.low, nodes_[part].hash.high);
  for (const RegexId part : {row.comma, row.close})
    add(nodes_[part].hash.low, nodes_[part].hash.high);
  for (const std::uint64_t set : row.allowed) add(set, 0);
  // Where all places take the same values, another one is left as long as not all are written.
  const bool always_ends = row.allowed.size() == 1 && row.min <= count_of(row.allowed[0]);
  const auto index = static_cast<std::uint32_t>(distincts_.size());
  distincts_.push_back({std::move(row), hash, always_ends});
  return distinct_rest(index, 0);
}

RegexId RegexStore::distinct_rest(std::uint32_t row, std::uint64_t written) {
  const Distinct& of = distincts_[row];
  Node node{Kind::distinct, false, of.always_ends, Life::unknown, row};
  node.min = static_cast<std::uint32_t>(written);
  node.max = static_cast<std::uint32_t>(written >> 32);
  return intern(node, mix(Kind::distinct, {of.hash.low, of.hash.high, written}));
}

// The same as a choice of its next values, each with what may follow it.
RegexId RegexStore::spelled_out(RegexId distinct) {
  if (nodes_[distinct].b != 0) return nodes_[distinct].b;
  const std::uint32_t index = nodes_[distinct].a;
  const std::uint64_t written = nodes_[distinct].min | std::uint64_t{nodes_[distinct].max} << 32;
  const DistinctRow row = distincts_[index].row;
  const auto allowed_at = [&](std::size_t i) {
    return row.allowed[std::min(i, row.allowed.size() - 1)];
  };
  const std::uint32_t count = count_of(written) + 1;
  std::vector<RegexId> ways;
  for (std::uint64_t left = allowed_at(count - 1) & ~written; left != 0; left &= left - 1) {
    const std::uint64_t now = written | (left & -left);
    std::vector<RegexId> after;
    if (count >= row.min) after.push_back(row.close);
    const bool goes_on = count < row.max && (allowed_at(count) & ~now) != 0;
    if (goes_on) after.push_back(concat(row.comma, distinct_rest(index, now)));
    const RegexId value = row.values[static_cast<std::size_t>(__builtin_ctzll(left))];
    ways.push_back(concat(value, any_of(std::move(after))));
  }
  const RegexId choice = any_of(std::move(ways));
  nodes_[distinct].b = choice;
  return choice;
}

}  // namespace quire::structured
