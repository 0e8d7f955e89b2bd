#include <catch2/catch.hpp>

#include "engine/kv_cache/hit_rate.h"
#include "engine/kv_hash/event_hash.h"
#include "tests/engine/kv_cache/runtime_vectors.h"
#include "tests/support/conformance.h"

namespace quire {
namespace {

using namespace quire::test;
using simdjson::dom::element;

std::string hex(std::span<const std::uint8_t> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::vector<std::uint8_t> from_hex(std::string_view text) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    bytes.push_back(
        static_cast<std::uint8_t>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

std::vector<PromptItem> items_of(element vector_case) {
  std::vector<PromptItem> items;
  if (!has(vector_case, "mm_items")) return items;
  for (const element item : vector_case["mm_items"].get_array()) {
    items.push_back({std::string(std::string_view(item.at(0))),
                     static_cast<int>(std::int64_t(item.at(1))),
                     static_cast<int>(std::int64_t(item.at(2)))});
  }
  return items;
}

std::string text_of(const std::vector<ExtraKey>& keys) {
  std::string line;
  for (const ExtraKey& key : keys) {
    if (const auto* item = std::get_if<ItemKey>(&key)) {
      line += item->identifier + "@" + std::to_string(item->offset) + " ";
    } else {
      line += std::get<std::string>(key) + " ";
    }
  }
  return line;
}

std::string expected_keys(element keys) {
  std::string line;
  if (keys.is_null()) return line;
  for (const element key : keys.get_array()) {
    if (key.is_array()) {
      line += std::string(std::string_view(key.at(0))) + "@" +
              std::to_string(std::int64_t(key.at(1))) + " ";
    } else {
      line += std::string(std::string_view(key)) + " ";
    }
  }
  return line;
}

Request request_of(element vector_case, std::string_view tokens) {
  RequestInit init;
  init.prompt = ints(vector_case[tokens]);
  init.cache_salt = text_or(vector_case, "cache_salt", "");
  init.lora_name = text_or(vector_case, "lora_name", "");
  init.items = items_of(vector_case);
  return Request(std::move(init));
}

void check_hashes(element expected, const Request& request, std::size_t per_block) {
  std::string theirs, ours;
  for (const element hash : expected["block_hashes"].get_array()) {
    theirs += std::string(std::string_view(hash)) + " ";
  }
  for (std::size_t i = 0; i + per_block <= request.event_hashes.size(); i += per_block) {
    for (std::size_t j = 0; j < per_block; ++j) ours += hex(request.event_hashes[i + j]);
    ours += " ";
  }
  expect_equal("block_hashes", theirs, ours);
}

void check_chain(element vector_case, element expected) {
  Request request = request_of(vector_case, "token_ids");
  const std::string seed = text_or(vector_case, "seed", "");
  if (has(vector_case, "none_hash")) {
    expect_equal("root", text_or(vector_case, "none_hash", ""), hex(root_hash(seed)));
  }
  const int block_size = int_or(vector_case, "block_size", 1);
  EventHasher(block_size, root_hash(seed)).extend(request, request.num_tokens());
  check_hashes(expected, request, 1);
  int next_item = 0;
  int start = 0;
  for (const element keys : expected["extra_keys"].get_array()) {
    expect_equal(
        "extra_keys", expected_keys(keys),
        text_of(extra_keys(extra_key_inputs(request), start, start + block_size, next_item)));
    start += block_size;
  }
}

void check_incremental(element vector_case, element expected) {
  Request request = request_of(vector_case, "prompt_token_ids");
  EventHasher hasher(int_or(vector_case, "block_size", 1),
                     root_hash(text_or(vector_case, "seed", "")));
  hasher.extend(request, request.num_tokens());
  for (const int token : ints(vector_case["appended_token_ids"])) {
    request.append(token);
    hasher.extend(request, request.num_tokens());
  }
  check_hashes(has(vector_case, "corrected") ? vector_case["corrected"] : expected, request, 1);
}

void check_coarse(element vector_case, element expected) {
  Request request = request_of(vector_case, "token_ids");
  const int fine = int_or(vector_case, "hash_block_size", 1);
  EventHasher(fine, root_hash(text_or(vector_case, "seed", "")))
      .extend(request, request.num_tokens());
  check_hashes(expected, request,
               static_cast<std::size_t>(int_or(vector_case, "target_block_size", 1) / fine));
}

void write(CborWriter& cbor, element value) {
  if (value.is_null()) return cbor.null();
  if (value.is_array()) {
    cbor.array(value.get_array().size());
    for (const element item : value.get_array()) write(cbor, item);
    return;
  }
  if (value.is_object()) return cbor.bytes(from_hex(value["hex"]));
  if (value.is_string()) return cbor.text(value);
  if (value.is_uint64()) return cbor.unsigned_int(value);
  cbor.integer(value);
}

void check_cbor(element vector_case, element expected) {
  CborWriter cbor;
  write(cbor, vector_case["value"]);
  expect_equal("cbor", text_or(expected, "cbor", ""), hex(cbor.data()));
  expect_equal("sha256", text_or(expected, "sha256", ""), hex(sha256(cbor.data())));
}

void check_extra_keys(element vector_case, element expected) {
  const auto items = items_of(vector_case);
  const std::string salt = text_or(vector_case, "cache_salt", "");
  const std::string lora = text_or(vector_case, "lora_name", "");
  int next_item = std::max(int_or(vector_case, "start_mm_index", 0), 0);
  const auto keys = extra_keys({lora, salt, items}, int_or(vector_case, "start", 0),
                               int_or(vector_case, "end", 0), next_item);
  expect_equal("extra_keys", expected_keys(expected["extra_keys"]), text_of(keys));
  expect_equal("next item", int_or(expected, "next_mm_index", 0), next_item);
}

void check_group_key(element vector_case, element expected) {
  const auto hash = from_hex(vector_case["block_hash"]);
  const auto group = static_cast<std::uint32_t>(std::uint64_t(vector_case["group"]));
  expect_equal("key", text_or(expected, "key", ""), hex(group_key(hash, group)));
  expect_equal("event_int", std::to_string(std::uint64_t(expected["event_int"])),
               std::to_string(event_int(hash)));
}

void check_case(element vector_case) {
  const std::string_view type = vector_case["type"];
  const element expected = vector_case["expected"];
  if (type == "chain") return check_chain(vector_case, expected);
  if (type == "chain_incremental") return check_incremental(vector_case, expected);
  if (type == "coarse") return check_coarse(vector_case, expected);
  if (type == "cbor") return check_cbor(vector_case, expected);
  if (type == "extra_keys") return check_extra_keys(vector_case, expected);
  if (type == "group_key") return check_group_key(vector_case, expected);
  throw std::runtime_error("unknown type " + std::string(type));
}

void check_hit_rate(element vector_case) {
  HitRate rate(int_or(vector_case, "window_requests", 0));
  auto expected = vector_case["expected"].get_array().begin();
  for (const element step : vector_case["steps"].get_array()) {
    if (bool_or(step, "reset", false)) rate.reset();
    rate.add({int_or(step, "requests", 0), int_or(step, "queries", 0), int_or(step, "hits", 0)});
    const element after = *expected;
    expect_equal("requests", int_or(after, "requests", 0), rate.total().requests);
    expect_equal("queries", int_or(after, "queries", 0), rate.total().queries);
    expect_equal("hits", int_or(after, "hits", 0), rate.total().hits);
    expect_close("hit_rate", double(after["hit_rate"]), rate.rate());
    ++expected;
  }
}

}  // namespace

TEST_CASE("Block hashes for the outside are the recorded ones", "[kv_cache][conformance]") {
  require_conformance("block_hash/1", 88, check_case);
}

TEST_CASE("The hit rate's window moves as recorded", "[kv_cache][conformance]") {
  require_conformance("cache_metrics/1", 9, check_hit_rate);
}

}  // namespace quire
