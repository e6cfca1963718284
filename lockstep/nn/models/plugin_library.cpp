#include "lockstep/nn/models/plugin_library.h"

#include <algorithm>
#include <dlfcn.h>
#include <filesystem>
#include <string_view>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/nn/models/catalogue.h"
#include "lockstep/nn/models/loss_names.h"

namespace lockstep::nn {
namespace {

struct Loaded {
  std::vector<PluginModel> models;
  std::vector<PluginData> sets;
  std::vector<PluginLoss> losses;
};

Loaded& loaded() {
  static Loaded all;
  return all;
}

// Appends what is offered under names that are free.
template <typename Offered>
void append(const std::string& path, const std::vector<Offered>& offered,
    std::vector<std::string> names, std::vector<Offered>& all) {
  for (const Offered& each : all) names.push_back(each.name);
  for (const Offered& each : offered) {
    check(!each.name.empty() && std::ranges::find(names, each.name) == names.end(), "plugin ", path,
        ": a name is taken or empty: ", each.name);
    names.push_back(each.name);
    all.push_back(each);
  }
}

// A name without a slash would be looked for in the system's folders.
std::string path_to_open(const std::string& path) {
  check(std::filesystem::is_regular_file(path), "plugin ", path, ": there is no such file");
  return std::filesystem::absolute(path);
}

// All symbols are bound now: one that is missing is named here and not in the middle of training.
const PluginContents& contents_of(const std::string& path) {
  void* library = ::dlopen(path_to_open(path).c_str(), RTLD_NOW | RTLD_LOCAL);
  check(library != nullptr, "plugin ", path,
      " cannot be loaded: ", library != nullptr ? "" : ::dlerror());
  using Contents = const PluginContents* (*)();
  const auto contents = reinterpret_cast<Contents>(::dlsym(library, "lockstep_plugin"));
  check(contents != nullptr, "plugin ", path,
      " offers nothing: it has no LOCKSTEP_MODEL, LOCKSTEP_DATA or LOCKSTEP_LOSS");
  return *contents();
}

void check_version(const std::string& path, const PluginContents& contents) {
  check(std::string_view(contents.made_for) == kPluginAbi, "plugin ", path, " was compiled for ",
      contents.made_for, ", but this is ", kPluginAbi, "; compile it again");
}

}  // namespace

void load_plugin(const std::string& path) {
  const PluginContents& contents = contents_of(path);
  check_version(path, contents);
  append(path, contents.models, model_names(), loaded().models);
  append(path, contents.sets, {}, loaded().sets);
  append(path, contents.losses, loss_names(), loaded().losses);
}

const std::vector<PluginModel>& plugin_models() { return loaded().models; }

const std::vector<PluginData>& plugin_sets() { return loaded().sets; }

const std::vector<PluginLoss>& plugin_losses() { return loaded().losses; }

}  // namespace lockstep::nn
