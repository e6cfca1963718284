#include "lockstep/bench/report/replace_file.h"

#include <cstdint>
#include <span>

#include "lockstep/core/error.h"
#include "lockstep/formats/output_file.h"

namespace lockstep::bench {

void replace_file(const std::filesystem::path& path, const std::string& text) {
  const auto fresh = path.parent_path() / concat(".", path.filename().string(), ".new");
  std::filesystem::remove(fresh);  // of a writer that was killed
  OutputFile file(fresh);
  file.write(text);
  file.sync();
  file.close();
  std::filesystem::rename(fresh, path);
}

}  // namespace lockstep::bench
