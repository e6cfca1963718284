#pragma once

#include <string>
#include <vector>

#include "lockstep/nn/models/plugin.h"

namespace lockstep::nn {

/// Loads a plugin, from then on make_model() knows its nets. It stays for the life of the process.
/// Not for several threads at a time.
///
/// Throws InvalidArgument if the file is no shared library or no plugin, was made for another
/// LibTorch or Lockstep, offers nothing, or a name that is taken.
void load_plugin(const std::string& path);

/// Returns the nets of the plugins that were loaded.
const std::vector<PluginModel>& plugin_models();

/// Returns their data sets.
const std::vector<PluginData>& plugin_sets();

/// Returns their losses.
const std::vector<PluginLoss>& plugin_losses();

}  // namespace lockstep::nn
