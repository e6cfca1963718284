#include "bench/study/train_command.h"

#include "bench/study/study_options.h"

namespace lockstep::bench {

Words spreading_flags(const std::string& way, int places) {
  if (way == "dp") return words_of("--parallel", way, "--places", places);
  // A rank that dies is a failure to record, not one to hide by starting again.
  if (way == "ddp")
    return words_of("--parallel", way, "--nproc-per-node", places, "--max-restarts", 0);
  return {"--parallel", way};
}

StudyCell on_device(StudyCell cell, const std::string& device) {
  if (device.empty()) return cell;
  cell.id += "-" + device;
  cell.settings.push_back({"device", device});
  add_words(cell.command, words_of("--device", device));
  cell.on_cores = StudyOptions{.device = device}.on_cores();
  return cell;
}

}  // namespace lockstep::bench
