#pragma once

#include <optional>
#include <string>

#include <CLI/App.hpp>

#include "lockstep/train/options/loading_settings.h"

namespace lockstep::cli {

/// Is what the flags about images say, as text where only our own reader knows the words.
struct LoadingTexts {
  std::string augment = "none", bad_images = "fail", workers = "auto";
  LoadingSettings settings;  // but for the words above
};

/// Declares the flags that say how images reach the model.
void add_loading_flags(CLI::App& app, LoadingTexts& texts);

}  // namespace lockstep::cli
