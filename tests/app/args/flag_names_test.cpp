#include "app/args/flag_names.h"

#include <CLI/CLI.hpp>
#include <catch2/catch.hpp>
#include <string>
#include <type_traits>

#include "app/flags/engine_flags.h"
#include "engine/config.h"

namespace quire {
namespace {

// "CacheConfig::block_size" of &CacheConfig::block_size, and what it is called, for every member
// that is no structure itself.
template <class Visit, auto... Members>
void for_each_leaf(FieldList<Members...>, const Visit& visit);

template <auto Member, class Visit>
void visit_member(const Visit& visit) {
  const auto value_of = []<class T, class V>(V T::*) { return V(); };
  using Value = decltype(value_of(Member));
  if constexpr (HasFields<Value>) {
    for_each_leaf(typename FieldsOf<Value>::type(), visit);
  } else {
    const std::string_view spelled = detail::spelled<Member>();
    const std::string_view value = spelled.substr(spelled.find("&quire::") + 8);
    visit(std::string(value.substr(0, value.find_first_of(";]"))));
  }
}

template <class Visit, auto... Members>
void for_each_leaf(FieldList<Members...>, const Visit& visit) {
  (visit_member<Members>(visit), ...);
}

}  // namespace

TEST_CASE("Every field of an engine's configuration is called what its flag is called") {
  CLI::App app;
  EngineConfig config;
  add_engine_flags(app, config);
  const auto is_option = [&app](const std::string& field) {
    return app.get_option_no_throw(with_flags(field)) != nullptr;
  };
  int num_fields = 0;
  for_each_leaf(EngineConfig::Fields(), [&](const std::string& field) {
    ++num_fields;
    // A drafter has one flag, an object.
    const bool is_part = field.starts_with("SpeculativeConfig::");
    INFO(field << " is called " << with_flags(field));
    CHECK((is_option(field) || is_option(field + "=false") ||
           (is_part && is_option("EngineConfig::speculative"))));
  });
  CHECK(num_fields > 60);
  for (const char* off :
       {"CacheConfig::enable_prefix_caching=false", "CacheConfig::hybrid_manager=false",
        "KvEventsConfig::int_hashes=false", "SchedulerConfig::async_scheduling=false",
        "SchedulerConfig::enable_chunked_prefill=false"}) {
    INFO(off << " is called " << with_flags(off));
    CHECK(is_option(off));
  }
}

TEST_CASE("Fields in a text become flags, and nothing else does") {
  CHECK(with_flags("SchedulerConfig::max_num_batched_tokens must be at least "
                   "SchedulerConfig::max_num_seqs (8), not 4") ==
        "--max-num-batched-tokens must be at least --max-num-seqs (8), not 4");
  CHECK(with_flags("has no effect with CacheConfig::enable_prefix_caching=false; remove it") ==
        "has no effect with --no-enable-prefix-caching; remove it");
  CHECK(with_flags("CacheConfig::hybrid_manager=false") == "--disable-hybrid-kv-cache-manager");
  CHECK(with_flags("CorsConfig::origins is closed") == "--allowed-origins is closed");
  CHECK(with_flags("(TlsContext::Files::key)") == "(--engine-ssl-keyfile)");
  for (const char* other :
       {"", "::", "a::b", "::1", "http://[::1]:8000", "[fe80::1]", "std::bad_alloc",
        "Other::block_size", "a::", "::CacheConfig", "CacheConfig"})
    CHECK(with_flags(other) == other);
}

}  // namespace quire
