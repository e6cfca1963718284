// Trains as one rank of a run; `lockstep train` starts as many of them as asked. Or evaluates.

#include <atomic>
#include <chrono>
#include <csignal>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <unistd.h>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/types.h>

#include "lockstep/cli/train/mains.h"
#include "lockstep/cli/train/train_flags.h"
#include "lockstep/cluster/place.h"
#include "lockstep/comm/device/device_backends.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/process.h"
#include "lockstep/device/accelerator.h"
#include "lockstep/device/arithmetic.h"
#include "lockstep/device/host_memory.h"
#include "lockstep/liveness/progress_page.h"
#include "lockstep/liveness/spare.h"
#include "lockstep/nn/models/plugin_library.h"
#include "lockstep/parallel/place/place.h"
#include "lockstep/train/dry_run.h"
#include "lockstep/train/record/progress.h"
#include "lockstep/train/record/run_directory.h"
#include "lockstep/train/state/same_on_ranks.h"
#include "lockstep/train/stop_signal.h"
#include "lockstep/train/strategy/devices.h"
#include "lockstep/train/strategy/layout.h"
#include "lockstep/train/trainer.h"

namespace lockstep::cli {
namespace {

TrainSurroundings surroundings() {
  const int world_size = environment_count("WORLD_SIZE", 1).value_or(1);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {.world_size = world_size,
      .local_world_size = environment_count("LOCAL_WORLD_SIZE", 1).value_or(world_size),
      .unix_time = std::chrono::duration_cast<std::chrono::seconds>(now).count(),
      .restart_count = environment_count("TORCHELASTIC_RESTART_COUNT").value_or(0)};
}

// With --nproc-per-node, which the launcher has taken out, so that the command can be given again.
std::vector<std::string> command_line(const std::vector<std::string>& arguments, int ranks) {
  std::vector<std::string> words = {"lockstep", "train"};
  if (ranks > 1) words.insert(words.end(), {"--nproc-per-node", std::to_string(ranks)});
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

void report(const RunSummary& summary, const TrainCommand& command) {
  if (!summary.epochs.empty()) std::cout << epoch_table(summary);
  if (summary.profile) std::cout << profile_text(*summary.profile);
  std::cout << "The run's files are in " << command.options.output << '\n';
  if (command.json) std::cout << to_json(summary) << '\n';
  std::cout.flush();
  if (summary.exit == static_cast<int>(ExitCode::kStopped)) std::cerr << kStoppedText << std::flush;
}

// Says what failed and ends here, with the group still open: were it closed first, the other ranks
// could end sooner than this one, and the launcher would take their loss of a peer for the cause.
[[noreturn]] void leave(const std::exception& error) {
  if (const auto memory = as_memory_error(error)) leave(*memory);
  report_error("lockstep", error);
  ::_exit(static_cast<int>(exit_code_of(error)));
}

int train_rank(const TrainCommand& command, const ProcessGroup& world,
    const std::vector<std::string>& words, const std::vector<Place>& places) {
  std::optional<WaitingNotice> notice;
  const bool tells = world.rank() == 0 && command.options.progress != ProgressStyle::kNone;
  if (tells) notice.emplace().begin("lockstep: reading the data, making the model");
  Trainer trainer(command.options, world, words, places);
  notice.reset();
  const RunSummary summary = trainer.run();
  if (world.rank() == 0) report(summary, command);
  return summary.exit;
}

// Each rank a thread in its place, or above the places of its stages.
int train_threads(const TrainCommand& command, const std::vector<std::string>& words,
    const Layout& layout, const std::vector<Place>& places) {
  std::atomic<int> code{0};  // the same of all
  run_ranks(layout.thread_ranks, [&](const ProcessGroup& world) {
    const auto first = places.begin() + world.rank() * layout.places;
    const std::vector<Place> own(first, first + layout.places);
    PlaceWorker worker(own.size() == 1 ? own.front() : Place(), concat("rank ", world.rank()));
    const ProcessGroup group = world.with_devices(devices_of(own));
    worker.begin([&] {
      try {
        code = train_rank(command, group, words, own);
      } catch (const std::exception& error) {
        // The group of threads learns of it by itself, an accelerator's engine does not.
        group.abort(concat("rank ", group.rank(), " failed: ", error.what()));
        throw;
      }
    });
    worker.wait();
  });
  return code;
}

PrecisionChoice choose(
    const TrainCommand& command, const Computing& on, std::optional<Precision> resumed) {
  const PrecisionRequest asked{.is_auto = command.options.auto_precision,
      .is_given = command.names_precision,
      .precision = command.options.precision};
  return choose_precision(asked, on, resumed);
}

// A value as a number below that of none, so that the minimum over ranks is one that is known.
template <typename Enum>
int known_number(std::optional<Enum> value) {
  return value ? -1 - static_cast<int>(*value) : 0;
}

template <typename Enum>
std::optional<Enum> known_value(const torch::Tensor& number) {
  const auto known = number.item<std::int64_t>();
  return known < 0 ? std::optional(static_cast<Enum>(-1 - known)) : std::nullopt;
}

using nn::Kernels;

Kernels choose(const TrainCommand& command, std::optional<Kernels> resumed) {
  const Kernels asked = command.options.kernels;
  return command.names_kernels ? asked : resumed.value_or(asked);
}

// 0 where nobody asks for it.
double bf16_speed_for(const TrainCommand& command, const torch::Device& device) {
  const TrainOptions& options = command.options;
  const bool matters = !command.names_precision || options.auto_precision ||
                       options.precision == Precision::kBf16Mixed;
  return matters ? bf16_speed(device) : 0;
}

// The same on all ranks, also where their processors are unlike, or some see no snapshots. A
// collective.
PrecisionChoice agree_on_arithmetic(
    TrainCommand& command, const torch::Device& device, const ProcessGroup& world) {
  const auto own = resumed_arithmetic(command.options);
  const torch::Tensor facts = torch::tensor(
      {bf16_speed_for(command, device), static_cast<double>(known_number(own.precision)),
          static_cast<double>(known_number(own.kernels))},
      torch::kDouble);
  world.all_reduce(facts, ReduceOp::kMin).wait();
  const Computing on{.bf16_speed = facts[0].item<double>(), .on_accelerators = !device.is_cpu()};
  const auto precision = choose(command, on, known_value<Precision>(facts[1]));
  command.options.precision = precision.precision;
  command.options.kernels = choose(command, known_value<Kernels>(facts[2]));
  return precision;
}

// Once, not at each restart.
void report_precision(const PrecisionChoice& choice, const TrainOptions& options) {
  if (options.resume.again || options.progress == ProgressStyle::kNone) return;
  if (!choice.warning.empty()) std::cerr << "lockstep: warning: " << choice.warning << '\n';
  if (!choice.hint.empty()) std::cerr << "lockstep: " << choice.hint << '\n';
}

// Once, not at each restart.
std::vector<Place> choose_places(
    const TrainOptions& options, const Layout& layout, const ProcessGroup& world) {
  const DeviceChoice choice = choose_device(options);
  const RankOfHost own{.rank = environment_count("LOCAL_RANK").value_or(0),
      .ranks = environment_count("LOCAL_WORLD_SIZE", 1).value_or(1)};
  std::vector<Place> places =
      places_of_process(options, choice, layout.thread_ranks * layout.places, own);
  const bool speaks =
      world.rank() == 0 && !options.resume.again && options.progress != ProgressStyle::kNone;
  const std::string text = describe(choice, places, own.ranks);
  if (speaks && !text.empty()) std::cerr << "lockstep: " << text << '\n';
  return places;
}

InitOptions meeting_of(const TrainOptions& options) {
  InitOptions meeting{.backend = options.backend};
  if (options.timeout) {
    const std::chrono::duration<double> seconds(*options.timeout);
    meeting.timeout = std::chrono::ceil<std::chrono::milliseconds>(seconds);
  }
  return meeting;
}

int train(TrainCommand command, const std::vector<std::string>& words) {
  // A reader of our lines may go, as `head` does, and the run matters more.
  std::signal(SIGPIPE, SIG_IGN);
  // Before there are other threads, which begin with their creator's modes. A momentum whose
  // gradient stays zero, as behind a dead ReLU, ends among these numbers.
  at::globalContext().setFlushDenormal(!command.options.keep_denormals);
  // Early, so that the launcher notices an attempt that ends before its first step.
  ProgressPage::from_environment();
  keep_frames_in(command.options.output + "/logs");
  // On every rank, so that all refuse alike; the folder is made after they have met.
  check_run_directory(command.options.output, command.options.resume);
  const ProcessGroup world = init_process_group(meeting_of(command.options));
  try {
    check_same_flags(command.options, world);
    const Layout layout = plan_layout(command.options, world.size());
    // The places have all cores; OpenMP's threads of the caller would spin on them between its own
    // few loops, which made a step of mnist-small in two places four times as long.
    if (layout.places > 1) at::set_num_threads(1);
    const std::vector<Place> places = choose_places(command.options, layout, world);
    const torch::Device device = places.empty() ? torch::kCPU : places.front().device;
    use_device(device);
    const PrecisionChoice precision = agree_on_arithmetic(command, device, world);
    if (world.rank() == 0) report_precision(precision, command.options);
    if (command.options.tf32 != Tf32::kAuto) {
      const bool is_on = command.options.tf32 == Tf32::kOn;
      allow_tf32(is_on, is_on);
    }
    if (command.options.cudnn_benchmark) time_convolutions();
    if (command.options.share_devices) register_device_backend(device.type(), nullptr);
    if (layout.thread_ranks > 1) return train_threads(command, words, layout, places);
    return train_rank(command, world.with_devices(devices_of(places)), words, places);
  } catch (const std::exception& error) {
    leave(error);
  }
}

int body(int count, char** values) {
  wait_if_spare();
  const std::vector<std::string> arguments(values + 1, values + count);
  if (!arguments.empty() && arguments[0] == "eval")
    return eval_main({arguments.begin() + 1, arguments.end()});
  if (!arguments.empty() && arguments[0] == "sample")
    return sample_main({arguments.begin() + 1, arguments.end()});
  cluster::adopt_rank_place();  // its ranks may be started by srun or mpirun, not by `lockstep`
  handle_stop_signals();
  if (arguments.size() == 2 && arguments[0] == "--check-devices")
    return check_all_devices(arguments[1]);
  if (!arguments.empty() && arguments[0] == kShowData) return show_data(arguments);
  const TrainSurroundings around = surroundings();
  const bool speaks = environment_count("RANK").value_or(0) == 0;
  auto command = parse_train_flags(arguments, around);
  if (command && !command->options.plugin.empty()) nn::load_plugin(command->options.plugin);
  if (!command) {
    if (speaks) std::cout << train_help();
  } else if (command->dry_run) {
    if (speaks) {
      const auto resumed = resumed_arithmetic(command->options);
      const Computing here{.bf16_speed = bf16_speed_for(*command, torch::kCPU)};
      command->options.precision = choose(*command, here, resumed.precision).precision;
      command->options.kernels = choose(*command, resumed.kernels);
      std::cout << plan_text(dry_run(command->options, around.world_size, around.local_world_size));
    }
  } else {
    return train(*command, command_line(arguments, around.local_world_size));
  }
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace
}  // namespace lockstep::cli

int main(int count, char** values) {
  return lockstep::run_program("lockstep", lockstep::cli::body, count, values);
}
