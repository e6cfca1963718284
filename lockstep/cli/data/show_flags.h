#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/train/input/data_sheet.h"

namespace lockstep::cli {

/// The request of `lockstep data show`.
struct ShowRequest {
  std::string set, directory;
  SheetRequest sheet;
  std::string output;
};

/// Reads what stands after `lockstep data show`; nothing if it asks for help, which is then
/// printed. The data set has a folder afterwards, unless it needs none.
std::optional<ShowRequest> show_request(const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
