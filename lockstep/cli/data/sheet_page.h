#pragma once

#include <string>

#include "lockstep/train/input/data_sheet.h"

namespace lockstep::cli {

/// Writes a contact sheet as one HTML file that needs neither network nor script; images are PNG in
/// the page itself.
std::string sheet_page(const SheetRequest& request, const DataSheet& sheet);

}  // namespace lockstep::cli
