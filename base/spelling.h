#pragma once
// How texts for people name a configuration's field. Below app/ they say which member it is,
// "CacheConfig::block_size" or "CacheConfig::hybrid_manager=false", for only app/ knows what a
// command line calls it (app/args/flag_names.h). What shows texts to people (the log, replies) is
// handed a function that puts those names in; null leaves texts as they are.

#include <string>

namespace quire {

using Spelling = std::string (*)(std::string text);

}  // namespace quire
