#include "lockstep/cli/train/show_data.h"

#include <algorithm>
#include <iostream>

#include "lockstep/cli/data/sheet_page.h"
#include "lockstep/cli/data/show_flags.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/formats/output_file.h"
#include "lockstep/nn/models/plugin_library.h"
#include "lockstep/train/input/data_sheet.h"

namespace lockstep::cli {

int show_data(const std::vector<std::string>& arguments) {
  const auto request = show_request({arguments.begin() + 1, arguments.end()});
  if (!request) return 0;
  const std::string& plugin = request->sheet.options.plugin;
  if (!plugin.empty()) nn::load_plugin(plugin);
  AtomicFile page(request->output);  // before the work, not after
  const DataSheet sheet = make_data_sheet(request->sheet);
  page.write(sheet_page(request->sheet, sheet));
  page.commit();
  const auto failed = std::ranges::count_if(
      sheet.samples, [](const SheetSample& sample) { return !sample.failure.empty(); });
  std::cout << "Written: " << request->output << ", " << sheet.samples.size() << " of "
            << sheet.size << (plugin.empty() ? " images\n" : " samples\n");
  if (failed == 0) return 0;
  std::cerr << "lockstep data show: " << failed << " of them cannot be read; the page says why\n";
  return static_cast<int>(ExitCode::kData);
}

}  // namespace lockstep::cli
