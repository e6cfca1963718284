// Trains the net of model.h on the data of dataset.h, alone or with as many ranks as a launcher
// starts; see scripts/. Stopped at any time and started again, it resumes with the epoch that it
// did not finish.

#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <sstream>
#include <string>

#include "dataset.h"
#include "engine.h"

namespace {

struct Options {
  std::string data = "data";
  std::string output = "run";  ///< folder for snapshots and weights; all ranks must see it
  std::int64_t epochs = 10;
  double learning_rate = 0.1;
  std::string backend = "auto";  ///< shm within a host, gloo between hosts
  PassOptions pass;
};

template <typename Number>
void read_number(const std::string& text, Number& number) {
  std::istringstream stream(text);
  stream >> number;
  lockstep::check(stream && stream.eof(), "not a number: ", text);
}

bool is_bf16(const std::string& precision) {
  lockstep::check(
      precision == "32" || precision == "bf16-mixed", "--precision is 32 or bf16-mixed");
  return precision == "bf16-mixed";
}

Options read_options(int argc, char** argv) {
  Options options;
  using Text = std::string;
  const std::map<Text, std::function<void(const Text&)>> flags = {
      {"--data", [&](const Text& text) { options.data = text; }},
      {"--output", [&](const Text& text) { options.output = text; }},
      {"--epochs", [&](const Text& text) { read_number(text, options.epochs); }},
      {"--batch-size", [&](const Text& text) { read_number(text, options.pass.batch_size); }},
      {"--lr", [&](const Text& text) { read_number(text, options.learning_rate); }},
      {"--workers", [&](const Text& text) { read_number(text, options.pass.workers); }},
      {"--seed", [&](const Text& text) { read_number(text, options.pass.seed); }},
      {"--precision", [&](const Text& text) { options.pass.bf16 = is_bf16(text); }},
      {"--backend", [&](const Text& text) { options.backend = text; }}};
  Text known;
  for (const auto& flag : flags) known += " " + flag.first;
  for (int i = 1; i < argc; i += 2) {
    const auto flag = flags.find(argv[i]);
    lockstep::check(flag != flags.end() && i + 1 < argc, "cannot read ", argv[i],
        "; flags, each with a value:", known);
    flag->second(argv[i + 1]);
  }
  return options;
}

void print(std::int64_t epoch, double seconds, const Metrics& trained, const Metrics& tested) {
  std::printf("epoch %d: %.2f s, train loss %.6f, test loss %.6f, accuracy %.4f, top-5 %.4f\n",
      static_cast<int>(epoch + 1), seconds, trained.loss(), tested.loss(), tested.accuracy(),
      tested.accuracy5());
  std::fflush(stdout);
}

}  // namespace

int train(int argc, char** argv) {
  Options options = read_options(argc, argv);
  const auto world = lockstep::init_process_group({.backend = options.backend});
  const bool speaks = world.rank() == 0;
  const DataSets sets = open_data(options.data);

  torch::manual_seed(static_cast<std::int64_t>(options.pass.seed));
  Net net = make_net(sets.train->classes());
  torch::optim::SGD optimizer(net->parameters(),
      torch::optim::SGDOptions(options.learning_rate).momentum(0.9).weight_decay(5e-4));
  lockstep::Snapshot snapshot(options.output, world);
  auto [epoch, step] = snapshot.load(*net, optimizer);  // {0, 0} the first time
  // Batch norm sees the batches of all ranks, so that losses are those of one device with the same
  // global batch. Without this there are two collectives fewer per layer and step.
  Model model(net.ptr(), world, lockstep::DistributedDataParallelOptions().sync_batch_norm(true));

  for (; epoch < options.epochs; ++epoch) {
    const lockstep::Stopwatch watch;
    const auto trained = train_epoch(model, optimizer, sets.train, epoch, options.pass, world);
    const double seconds = watch.seconds();
    const auto tested = evaluate(model, sets.test, options.pass, world);
    if (speaks) print(epoch, seconds, trained, tested);
    snapshot.save(*net, optimizer, {.epoch = epoch + 1});  // written while the next epoch trains
  }
  snapshot.wait();
  const auto weights = std::filesystem::path(options.output) / "model.safetensors";
  if (speaks) lockstep::nn::save_weights(*net, weights);
  if (speaks) std::printf("weights are in %s\n", weights.c_str());
  return 0;
}

int main(int argc, char** argv) { return lockstep::run_program("train", train, argc, argv); }
