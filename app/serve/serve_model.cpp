#include "app/serve/serve_model.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>

#include "app/args/exit_codes.h"
#include "app/flags/engine_flags.h"
#include "app/models/model_path.h"
#include "app/models/pull_main.h"
#include "gguf/archive.h"
#include "hub/cache.h"
#include "hub/names.h"

namespace quire {

namespace {

// vLLM's two flags for what is one here: org/name@revision.
std::string with_revision(const std::string& model, const std::string& revision) {
  if (revision.empty() || revision == "main") return model;
  std::error_code ignored;
  if (std::filesystem::exists(model, ignored) || !hub::looks_like_name(model))
    throw CLI::ValidationError("--revision", "is of a model by org/name, and " + model + " is none");
  if (model.find('@') != model.npos)
    throw CLI::ValidationError("--revision", model + " names a revision already");
  return model + "@" + revision;
}

bool is_same_place(const std::filesystem::path& one, const std::filesystem::path& other) {
  std::error_code ignored;
  return one == other || std::filesystem::equivalent(one, other, ignored);
}

// What vLLM lets lie elsewhere, and is where the model is.
void check_places(ServeFlags& flags, const std::string& given, bool is_folder) {
  if (!flags.tokenizer.empty() && !is_same_place(flags.tokenizer, given))
    throw CLI::ValidationError("--tokenizer", "\"" + flags.tokenizer +
                                                  "\" is not offered; the tokenizer is read from "
                                                  "the model's folder");
  if (!flags.tokenizer.empty()) flags.without_effect.push_back("--tokenizer");
  if (flags.download_dir.empty()) return;
  if (!is_folder && !is_same_place(flags.download_dir, hub::Cache::of_environment().root()))
    throw CLI::ValidationError("--download-dir", "\"" + flags.download_dir +
                                                     "\" is not offered; models lie where HF_HOME "
                                                     "or HF_HUB_CACHE says");
  flags.without_effect.push_back("--download-dir");
}

}  // namespace

void add_serve_model_flags(CLI::App& app, ServeFlags& flags) {
  app.add_option(
         "--served-model-name", flags.server.served_model_names,
         "Names of the model in the API, of which replies use the first; default: the folder's")
      ->group("Model");
  app.add_option("--revision", flags.revision,
                 "Branch, tag or commit of MODEL by org/name, as in org/name@revision (main)")
      ->group("Model");
  app.add_option("--tokenizer", flags.tokenizer,
                 "Taken where it is MODEL, whose folder the tokenizer is read from")
      ->type_name("MODEL")
      ->group("Model");
  app.add_option("--download-dir", flags.download_dir,
                 "Taken where MODEL is a folder, or lies there: HF_HUB_CACHE says where models lie")
      ->type_name("DIR")
      ->group("Model");
}

void find_model_folder(ServeFlags& flags) {
  std::string& path = flags.engine.model.path;
  if (path.empty()) {
    throw CLI::ValidationError("MODEL",
                               "is missing; quire serve MODEL: a folder such as "
                               "models/quire-tiny, a .gguf file, or org/name");
  }
  const std::string given = path;
  std::error_code ignored;
  check_places(flags, given, std::filesystem::exists(given, ignored));
  const std::string wanted = with_revision(given, flags.revision);
  try {
    path = model_at(wanted);
    const bool is_here = std::filesystem::is_directory(path) || gguf::is_gguf(path);
    if (!is_here) path = model_at(model_folder(wanted, true));
    find_draft_model(flags.engine, true);
    if (is_here) return;
  } catch (const Failure& failure) {
    if (failure.error().code == ErrorCode::invalid_argument)
      throw CLI::ValidationError(given, failure.what());
    std::cerr << given << ": " << failure.what() << '\n';
    throw CLI::RuntimeError(kExitNotFetched);
  }
  if (path == wanted) throw CLI::ValidationError(given, "no such folder");
  if (flags.server.served_model_names.empty()) flags.server.served_model_names.push_back(given);
  flags.server.model_root = given.substr(0, given.find('@'));
}

}  // namespace quire
