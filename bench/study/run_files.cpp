#include "bench/study/run_files.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <unistd.h>

#include "lockstep/core/cpu_share.h"
#include "lockstep/core/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/formats/idx.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;

fs::path folder_of_digits(const std::string& data) {
  if (data == "fashion-mnist") return data::kFashionMnistDirectory;
  for (const std::string start : {"fashion-mnist:", "mnist:"}) {
    if (data.starts_with(start) && data.size() > start.size()) return data.substr(start.size());
  }
  throw InvalidArgument(
      concat("bench: --data must be fashion-mnist, fashion-mnist:DIR or mnist:DIR: ", data,
          data == "mnist" ? " (name the folder that holds its four files)" : ""));
}

}  // namespace

SummaryFacts read_run_summary(const fs::path& run) {
  const auto path = run / "summary.json";
  std::ifstream file(path, std::ios::binary);
  if (!file) throw DataError(concat(path.string(), ": the run left no summary"));
  return parse_summary({std::istreambuf_iterator<char>(file), {}}, path.string());
}

double or_nan(const std::optional<double>& value) {
  return value.value_or(std::numeric_limits<double>::quiet_NaN());
}

std::int64_t training_images(const std::string& data) {
  const fs::path folder = folder_of_digits(data);
  const std::string name = "train-labels-idx1-ubyte";
  for (const fs::path& path : {folder / name, folder / (name + ".gz")}) {
    if (fs::exists(path)) return read_idx(path, 1).shape.front();
  }
  throw DataError(concat((folder / name).string(), "[.gz]: no such file; ",
      data == "fashion-mnist" ? "apt install dataset-fashion-mnist, or --data fashion-mnist:DIR"
                              : "name the folder that holds the four files of the set"));
}

std::int64_t machine_memory() {
  const std::int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  const std::int64_t here = pages > 0 && page > 0 ? pages * page : 0;
  const auto limit = cgroup_memory_limit();
  if (!limit) return here;
  return here == 0 ? *limit : std::min(here, *limit);
}

}  // namespace lockstep::bench
