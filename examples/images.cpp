// Trains a ResNet on a folder of images, augmented as timm does and in mixed precision, and writes
// weights that Python reads; it can begin from Python's weights.
//
//     lockstep data synthesize images photos
//     lockstep run --nproc-per-node 2 ./images --data photos --pretrained resnet18.pth
//
// --precision float16 is for GPUs: a processor without instructions for it takes seconds a step.

#include <iostream>
#include <lockstep/lockstep.h>

#include "flags.h"
#include <torch/torch.h>

namespace {

using namespace lockstep;

data::SamplesPointer open_images(
    const data::ImageFolder& folder, std::unique_ptr<const data::ImageTransform> transform) {
  return std::make_shared<data::FolderSamples>(folder, std::move(transform));
}

struct ImageSets {
  data::SamplesPointer training, validation;
};

ImageSets open_sets(const Flags& flags) {
  const auto folders = data::open_image_folders(flags.text("data"));
  check(folders.validation.has_value(), "images: --data needs a folder val beside train");
  const ImageSize size{flags.number("image-size"), flags.number("image-size")};
  return {open_images(folders.train,
              data::make_train_transform(data::augment_options(data::AugmentKind::kTimm, size))),
      open_images(*folders.validation, data::make_eval_transform(size))};
}

nn::Model make_model(const Flags& flags, std::int64_t classes, const ProcessGroup& world) {
  nn::Model model = nn::make_model(flags.text("model"), classes);
  if (flags.text("pretrained") != "none") {
    const auto report =
        nn::load_weights(*model, flags.text("pretrained"), {.resizable = {"fc.weight", "fc.bias"}});
    if (world.rank() == 0) std::cerr << nn::remarks_text(report);
  }
  return model;
}

double accuracy(nn::Model& model, const data::SamplesPointer& images, const ProcessGroup& world) {
  const at::NoGradGuard no_gradients;
  model->eval();
  // Without padding no image counts twice.
  const DistributedSampler sampler(images->size(), world, {.shuffle = false, .padding = false});
  const torch::Tensor counts = torch::zeros({2});
  for (auto& batch : Loader(images, sampler.epoch(0), 32, {.channels_last = true})) {
    counts[0] += model(batch.input()).argmax(1).eq(batch.target()).sum();
    counts[1] += batch.target().size(0);
  }
  world.all_reduce(counts).wait();
  model->train();
  return (counts[0] / counts[1]).item<double>();
}

int train(int argc, char** argv) {
  const Flags flags(argc, argv,
      {{"data", "photos"}, {"model", "resnet18"}, {"pretrained", "none"}, {"image-size", "64"},
          {"batch-size", "32"}, {"epochs", "3"}, {"workers", "1"}, {"precision", "bfloat16"},
          {"output", "weights.safetensors"}});
  const auto world = init_process_group();
  const auto [images, held_out] = open_sets(flags);
  torch::manual_seed(42);
  nn::Model model = make_model(flags, images->classes(), world);
  DistributedDataParallel net(model, world);
  torch::optim::SGD optimizer(
      model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(5e-4));
  const auto type = flags.text("precision") == "float16" ? torch::kHalf : torch::kBFloat16;
  // All ranks skip the same steps; with bfloat16 none overflows.
  nn::GradScaler scaler(nn::GradScalerOptions().enabled(type == torch::kHalf), world);

  const DistributedSampler sampler(images->size(), world);
  for (std::int64_t epoch = 0; epoch < flags.number("epochs"); ++epoch) {
    const LoaderOptions options{.seed = 42,
        .epoch = epoch,
        .workers = static_cast<int>(flags.number("workers")),
        .channels_last = true};  // convolutions on a CPU are fastest so
    for (auto& batch : Loader(images, sampler.epoch(epoch), flags.number("batch-size"), options)) {
      optimizer.zero_grad();
      torch::Tensor loss;
      {
        const nn::Autocast autocast(torch::kCPU, type);
        loss = torch::cross_entropy_loss(net(batch.input()), batch.target());
      }
      scaler.scale(loss).backward();
      scaler.step(optimizer);
      scaler.update();
    }
    const double share = accuracy(model, held_out, world);
    if (world.rank() == 0)
      std::cout << "epoch " << epoch + 1 << ": accuracy " << share << std::endl;
  }
  if (world.rank() == 0) nn::save_weights(*model, flags.text("output"));
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return lockstep::run_program("images", train, argc, argv); }
