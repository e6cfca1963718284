#include "lockstep/train/input/datasets.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <unistd.h>
#include <utility>

#include <torch/types.h>

#include "lockstep/core/cpu_share.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/image_folder.h"
#include "lockstep/data/split.h"
#include "lockstep/data/split_mix.h"
#include "lockstep/data/transforms/augment.h"
#include "lockstep/nn/models/catalogue.h"
#include "lockstep/snapshot/group_values.h"
#include "lockstep/train/state/whole_model.h"
#include "lockstep/train/task/make_task.h"

namespace lockstep {
namespace {

using data::SplitMix;

SplitMix stream_of(const data::SampleKey& key) {
  const auto epoch = SplitMix::mix(key.seed) + static_cast<std::uint64_t>(key.epoch);
  return SplitMix(SplitMix::mix(epoch) + static_cast<std::uint64_t>(key.index));
}

// Sixteen bits as a number between the roots of 3, where an even distribution has variance 1.
float number_of(std::uint64_t bits) {
  constexpr float kRootOfThree = 1.7320508F;
  constexpr float kStep = 2 * kRootOfThree / 65536;
  return (static_cast<float>(bits & 0xffffU) + 0.5F) * kStep - kRootOfThree;
}

using data::Normalization;
using Transform = std::unique_ptr<const data::ImageTransform>;

// Repeats the one batch until an epoch is about as long as one of MNIST.
constexpr std::int64_t kMockRepetitions = 234;
constexpr const char* kConstantMock = "constant";
constexpr const char* kFreshMock = "fresh";
constexpr int kUsualSide = 224;
constexpr int kCifarSide = 32;

// Of the training images, as the field uses them.
const Normalization kCifar10{{0.4914F, 0.4822F, 0.4465F}, {0.2470F, 0.2435F, 0.2616F}};
const Normalization kCifar100{{0.5071F, 0.4867F, 0.4408F}, {0.2675F, 0.2565F, 0.2761F}};

// Both parts of a set that lies in memory.
struct Stored {
  data::InMemoryImages train;
  data::InMemoryImages test;
  Normalization normalization = {};
};

data::AugmentKind kind_of(Augment augment) {
  if (augment == Augment::kNone) return data::AugmentKind::kNone;
  return augment == Augment::kTimm ? data::AugmentKind::kTimm : data::AugmentKind::kCropFlip;
}

Transform train_transform(Augment augment, ImageSize size, const Normalization& normalization) {
  return data::make_train_transform(data::augment_options(kind_of(augment), size, normalization));
}

// What the model takes: ImageNet's images, CIFAR's for the small relatives, ten numbers. Those of
// ImageNet have the size that was asked for from the start: scaling them would cost each step time.
data::MockOptions mock_options(const TrainOptions& options) {
  const std::string& model = options.model;
  if (model == "toy") return {.shape = {.channels = 1, .height = 1, .width = 10}};
  if (model.ends_with("-cifar")) return {.shape = {.channels = 3, .height = 32, .width = 32}};
  if (model.starts_with("resnet") || model.starts_with("vgg")) {
    const std::int64_t side = options.loading.image_size.value_or(kUsualSide);
    return {.size = 128, .shape = {.channels = 3, .height = side, .width = side}};
  }
  return {};
}

Stored mock(const TrainOptions& options) {
  const auto batch = data::mock(mock_options(options));
  return {.train = batch.repeated(kMockRepetitions), .test = batch};
}

// Made in the size that was asked for, so that no step pays for a change of it.
Datasets open_noise(const TrainOptions& options) {
  check(options.loading.augment == Augment::kNone,
      "train: --augment changes images, and mock:", options.data.directory,
      " has none: leave it out, or take --data mock");
  const data::MockOptions mock = mock_options(options);
  NoiseOptions noise{.size = mock.size * kMockRepetitions,
      .classes = options.classes.value_or(mock.classes),
      .shape = mock.shape,
      .constant = options.data.directory == kConstantMock};
  if (const auto side = options.loading.image_size) noise.shape.height = noise.shape.width = *side;
  const auto train = std::make_shared<NoiseSamples>(noise);
  noise.size = mock.size;
  return {.train = train,
      .unaugmented = train,
      .labels = std::vector<std::int64_t>(static_cast<std::size_t>(train->size())),
      .test = std::make_shared<NoiseSamples>(noise)};
}

bool is_noise(const DataSource& data) {
  if (data.name != "mock" || data.directory.empty()) return false;
  check(data.directory == kConstantMock || data.directory == kFreshMock,
      "train: --data mock has no folder; there are mock, mock:", kConstantMock,
      " and mock:", kFreshMock, ", not mock:", data.directory);
  return true;
}

Stored read_stored(const TrainOptions& options) {
  const std::string& name = options.data.name;
  if (name == "mock") return mock(options);
  std::string folder = options.data.directory;
  if (name == "fashion-mnist" && folder.empty()) folder = data::kFashionMnistDirectory;
  check(!folder.empty(), "train: --data ", name, " needs a folder: --data ", name, ":DIR");
  if (name == "fashion-mnist")
    return {data::fashion_mnist(folder, true), data::fashion_mnist(folder, false)};
  if (name == "mnist") return {data::mnist(folder, true), data::mnist(folder, false)};
  if (name == "cifar10")
    return {data::cifar10(folder, true), data::cifar10(folder, false), kCifar10};
  return {data::cifar100(folder, true), data::cifar100(folder, false), kCifar100};
}

ImageSize size_of(const data::InMemoryImages& images) {
  return {images.shape().width, images.shape().height};
}

data::SamplesPointer samples_of(
    const data::InMemoryImages& images, const Normalization& normalization, ImageSize size) {
  if (size == size_of(images)) {
    return std::make_shared<data::StoredSamples>(images, normalization);
  }
  return std::make_shared<data::TransformedSamples>(
      images, data::make_eval_transform(size, normalization));
}

std::vector<std::int64_t> labels_of(const data::InMemoryImages& images) {
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < images.size(); ++i) labels.push_back(images.label(i));
  return labels;
}

void check_augmentable(const TrainOptions& options, const data::InMemoryImages& images) {
  check(options.loading.augment != Augment::kTimm || images.shape().channels == 3,
      "train: --augment timm changes colours, but the images of ", options.data.name,
      " are grey; use crop-flip or none");
}

Datasets open_stored(const TrainOptions& options) {
  const Stored stored = read_stored(options);
  check_augmentable(options, stored.train);
  const LoadingSettings& loading = options.loading;
  const ImageSize size = loading.image_size ? ImageSize{*loading.image_size, *loading.image_size}
                                            : size_of(stored.train);
  Datasets source{.unaugmented = samples_of(stored.train, stored.normalization, size),
      .labels = labels_of(stored.train),
      .test = samples_of(stored.test, stored.normalization, size),
      .normalization = stored.normalization,
      .is_mere_copy = loading.augment == Augment::kNone && size == size_of(stored.train),
      .bytes_in_memory = (stored.train.stored_images() + stored.test.stored_images()) *
                         stored.train.shape().elements()};
  source.train = loading.augment == Augment::kNone
                     ? source.unaugmented
                     : std::make_shared<data::TransformedSamples>(stored.train,
                           train_transform(loading.augment, size, stored.normalization));
  return source;
}

// Opens the parts of a folder, each with its rule for files that cannot be decoded.
class FolderOpener {
 public:
  FolderOpener(const TrainOptions& options, Datasets& source)
      : loading_(options.loading), source_(source) {
    const bool is_small = options.model.ends_with("-cifar");
    const int side = loading_.image_size.value_or(is_small ? kCifarSide : kUsualSide);
    size_ = {side, side};
    if (loading_.cache_decoded > 0)
      budget_ = std::make_shared<data::MemoryBudget>(loading_.cache_decoded);
  }

  data::SamplesPointer for_training(const data::ImageFolder& folder) {
    return open(folder, train_transform(loading_.augment, size_, data::imagenet_normalization()),
        data::OnBadImage::kReplace);
  }

  // Nothing stands in for an image that is counted.
  data::SamplesPointer for_evaluation(const data::ImageFolder& folder) {
    return open(folder, data::make_eval_transform(size_), data::OnBadImage::kIgnore);
  }

 private:
  data::SamplesPointer open(
      const data::ImageFolder& folder, Transform transform, data::OnBadImage when_skipping) {
    const bool skips = loading_.bad_images == BadImages::kSkip;
    auto samples = std::make_shared<data::FolderSamples>(
        folder, std::move(transform), skips ? when_skipping : data::OnBadImage::kFail, budget_);
    source_.folders.push_back(samples);
    return samples;
  }

  const LoadingSettings& loading_;
  Datasets& source_;
  ImageSize size_;
  std::shared_ptr<data::MemoryBudget> budget_;  // of all parts, the training images' first
};

std::string remark_on(const data::ImageFolders& folders, const std::string& directory) {
  data::OtherFiles others = folders.train.other_files();
  for (const auto* const part : {&folders.validation, &folders.test})
    if (*part) others += (*part)->other_files();
  const std::string endings = others.endings_text();
  if (endings.empty()) return "";
  return concat("these files of ", printable_path(directory), " are not read, since they are no ",
      "JPEG or PNG by their names, or lie outside the class folders: ", endings);
}

Datasets open_folders(const TrainOptions& options) {
  check(!options.data.directory.empty(), "train: --data images needs a folder: --data images:DIR");
  check(options.loading.cache_decoded <= usable_memory(), "train: --cache-decoded ",
      options.loading.cache_decoded, " is more than the memory that there is, ", usable_memory(),
      " bytes; give less, and leave room for the model and the other ranks");
  const data::ImageFolders folders =
      data::open_image_folders(options.data.directory, options.data.classes);
  Datasets source{.labels = folders.train.labels(),
      .normalization = data::imagenet_normalization(),
      .remark = remark_on(folders, options.data.directory)};
  FolderOpener opener(options, source);
  source.train = opener.for_training(folders.train);
  source.unaugmented = opener.for_evaluation(folders.train);
  if (folders.validation) source.validation = opener.for_evaluation(*folders.validation);
  if (folders.test) source.test = opener.for_evaluation(*folders.test);
  return source;
}

void check_tensor_flags(const DataSource& data) {
  check(data.name == "tensors" || (data.inputs.empty() && data.targets.empty()),
      "train: --inputs and --targets are for --data tensors:PATH; ", data.name, " has its own");
  check(data.name == "tokens" || data.name == "text" || !data.sequence_length,
      "train: --sequence-length is for --data tokens:PATH and text:PATH; ", data.name,
      " is not cut");
}

constexpr std::int64_t kImages = 16;
constexpr std::int64_t kNames = 1000;

// Evenly over the set, the first and the last among them.
std::vector<std::int64_t> some_of(std::int64_t size, std::int64_t most) {
  std::vector<std::int64_t> indices;
  const std::int64_t count = std::min(size, most);
  for (std::int64_t i = 0; i < count; ++i)
    indices.push_back(count > 1 ? i * (size - 1) / (count - 1) : 0);
  return indices;
}

torch::Tensor bytes_of(const std::string& text) {
  return torch::tensor(std::vector<std::uint8_t>(text.begin(), text.end()));
}

// Images, or inputs behind what the set says of them.
std::vector<torch::Tensor> some_samples(const data::Samples& set) {
  std::vector<data::SampleKey> keys;
  for (const std::int64_t index : some_of(set.size(), kImages)) keys.push_back({.index = index});
  data::BatchForm form = data::form_of(set);
  form.channels_last = true;
  const Batch batch = data::empty_batch(std::ssize(keys), form);
  set.read(keys, batch);
  std::vector<torch::Tensor> content = batch.input_tensors();
  std::string forms;
  for (const data::TensorForm& input : form.inputs) forms += input.text() + '\n';
  // Classes are there already, as labels.
  if (set.classes() == 0 || form.targets != std::vector{data::kClassTarget}) {
    for (const data::TensorForm& target : form.targets) forms += target.text() + '\n';
    for (const BatchTensor& target : batch.targets) content.push_back(target.tensor);
    forms += concat(set.size());
  }
  if (!forms.empty()) content.insert(content.begin(), bytes_of(forms));
  return content;
}

// Without the folder, which may have been moved.
torch::Tensor names_of(const data::Samples& set) {
  std::string text;
  for (const std::int64_t index : some_of(set.size(), kNames))
    text += std::filesystem::path(set.name(index)).filename().string() + '\n';
  return bytes_of(text);
}

// Of all labels, and of some images that lie in memory, or some names of files; of inputs and
// targets that a set names also their names, shapes and types. It finds mistakes, not forgery.
std::string data_fingerprint(const Datasets& source) {
  const data::Samples& set = *source.unaugmented;
  std::vector<torch::Tensor> content =
      source.folders.empty() ? some_samples(set) : std::vector{names_of(set)};
  content.insert(content.begin(), torch::tensor(source.labels, torch::kLong));
  return hexadecimal(parameters_hash(content));
}

}  // namespace

std::int64_t usable_memory() {
  const std::int64_t machine =
      std::int64_t{::sysconf(_SC_PHYS_PAGES)} * std::int64_t{::sysconf(_SC_PAGESIZE)};
  return std::min(machine, cgroup_memory_limit().value_or(machine));
}

void check_model_fits(const TrainOptions& options, const data::Samples& set, std::int64_t outputs,
    std::int64_t memory) {
  const data::ImageShape images = set.shape();
  const std::int64_t batch = std::min(options.batch_size, set.size());
  const nn::NetNeeds needs = nn::net_needs(options.model);
  check(needs.context == 0 || !set.inputs().empty(), "train: ", options.model,
      " takes tokens, and --data ", options.data.name,
      " has images; take text:FILE or tokens:FILE");
  check(!set.inputs().empty() || std::min(images.height, images.width) >= needs.least_side,
      "train: ", options.model, " halves images until nothing is left of ", images.height, " x ",
      images.width, " pixels; give --image-size ", needs.least_side, " or more");
  if (const auto inputs = set.inputs(); inputs.size() == 1 && needs.features > 0)
    check((inputs.front().type == torch::kFloat) == (needs.context == 0), "train: ", options.model,
        needs.context == 0 ? " takes float32" : " takes tokens", ", and the input of --data ",
        options.data.name, " is ", inputs.front().text(), "; store it as ",
        needs.context == 0 ? "float32, such as pixels / 255" : "int64");
  const bool in_colour = needs.channels == 3;
  check(!set.inputs().empty() || needs.channels == 0 || images.channels == needs.channels,
      "train: ", options.model, " takes ",
      in_colour ? "images of 3 channels" : "images of 1 channel", ", and those of --data ",
      options.data.name, " have ", images.channels, "; take ",
      in_colour ? "cifar10:DIR, cifar100:DIR, images:DIR" : "fashion-mnist, mnist:DIR",
      " or mock, whose images fit the model");
  // Weights and gradients of the last layer; a batch and its scores.
  const std::int64_t pixels = images.channels * images.height * images.width;
  const std::int64_t numbers = 2 * outputs * (needs.features + 1) + batch * (pixels + outputs);
  constexpr std::int64_t kMegabyte = 1'000'000;
  const std::int64_t megabytes = numbers * std::int64_t{sizeof(float)} / kMegabyte;
  check(megabytes <= memory / kMegabyte, "train: the last layer of ", options.model, " for ",
      outputs, set.classes() > 0 ? " classes" : " outputs", ", and a batch of ", batch,
      ", need at least ", megabytes, " MB, but there are ", memory / kMegabyte,
      " MB of memory; give ", set.classes() > 0 ? "fewer --num-classes or " : "",
      "a smaller --batch-size");
}

std::string NoiseSamples::name(std::int64_t index) const { return concat("mock ", index); }

std::int64_t NoiseSamples::read_one(const data::SampleKey& key, std::span<float> out) const {
  constexpr std::size_t kNumbersAWord = 4;  // of 64 bits
  SplitMix stream = stream_of(key);
  const std::int64_t drawn = stream.between(0, options_.classes - 1);
  for (std::size_t i = 0; i < out.size(); i += kNumbersAWord) {
    std::uint64_t bits = stream.next();
    for (float& number : out.subspan(i, std::min(kNumbersAWord, out.size() - i))) {
      number = number_of(bits);
      bits >>= 16;
    }
  }
  return options_.constant ? 0 : drawn;
}

Datasets open_source(const TrainOptions& options) {
  const std::string& name = options.data.name;
  check_tensor_flags(options.data);
  if (name == "images") return open_folders(options);
  check(options.data.classes.empty(), "train: --classes chooses class folders, --data images:DIR; ",
      name, " has none");
  check(options.loading.cache_decoded == 0,
      "train: --cache-decoded is for image files, --data images:DIR; nothing of ", name,
      " is decoded: leave the flag out");
  check(options.loading.bad_images == BadImages::kFail,
      "train: --bad-images skip is for image files, --data images:DIR; ", name, " has none");
  if (const auto source = open_plugin_data(options)) return *source;
  if (const auto source = open_tensor_data(options)) return *source;
  if (is_noise(options.data)) return open_noise(options);
  check(name == "fashion-mnist" || name == "mnist" || name == "cifar10" || name == "cifar100" ||
            name == "mock",
      "train: --data must be one of fashion-mnist, mnist, cifar10, cifar100, images, mock, "
      "tensors, tokens, text, or a set of --plugin, perhaps with a folder, such as cifar100:DIR: ",
      name);
  return open_stored(options);
}

std::vector<std::string> class_names_of(const DataSource& data) {
  return data.classes.empty() ? data::class_names(data.name, data.directory) : data.classes;
}

// The same images on both sides of the split every time: its part does not depend on anything but
// the seed.
void hold_out(Datasets& source, const TrainOptions& options) {
  const double share = options.loading.val_split;
  if (share == 0) return;
  check(source.validation == nullptr,
      "train: --val-split is for a set without a part to validate on, but ", options.data.directory,
      " has one");
  const auto seed = static_cast<std::uint64_t>(options.seed);
  const std::vector<double> shares{1 - share, share};
  const std::int64_t size = source.unaugmented->size();
  auto parts = source.labels.empty() ? data::split_by_seed(size, shares, seed)
                                     : data::stratified_split_by_seed(source.labels, shares, seed);
  check(!parts[0].empty() && !parts[1].empty(), "train: --val-split ", share,
      " leaves one side of the split of ", size, " samples empty");
  auto held = std::make_shared<data::SampleSubset>(source.unaugmented, std::move(parts[1]));
  source.validation = std::move(held);
  if (source.test == nullptr) source.test = source.validation;
  source.train = std::make_shared<data::SampleSubset>(source.train, parts[0]);
  source.unaugmented =
      std::make_shared<data::SampleSubset>(source.unaugmented, std::move(parts[0]));
}

Datasets load_datasets(const TrainOptions& options) {
  Datasets data = open_source(options);
  data.fingerprint = data_fingerprint(data);
  hold_out(data, options);
  data.labels = {};
  // Two parts suffice: what is validated on then is the test, too.
  if (data.test == nullptr) data.test = std::exchange(data.validation, nullptr);
  check(data.test != nullptr, "train: ", options.data.directory,
      " has nothing to test on: make a folder val or test next to train, or files whose names have "
      "these words, or hold some out by --val-split 0.1");
  if (options.repeat != 1)
    data.train = std::make_shared<data::RepeatedSamples>(data.train, options.repeat);
  return data;
}

Datasets load_datasets(const TrainOptions& options, const ProcessGroup& world) {
  std::optional<Datasets> data;
  TrainOptions own = options;
  const auto load = [&] {
    if (!data) data.emplace(load_datasets(own));
  };
  if (options.data.name == "tokens" && !options.classes) {
    do_on_root(load, world);
    double classes = data ? static_cast<double>(data->train->classes()) : 0;
    maximize({&classes}, world);
    own.classes = static_cast<std::int64_t>(classes);
  }
  work_patiently(load, world);
  return *std::move(data);
}

std::int64_t model_outputs(const TrainOptions& options, const Datasets& data) {
  const std::int64_t outputs = task_outputs(options, *data.train);
  check_model_fits(options, *data.train, outputs, usable_memory());
  return outputs;
}

}  // namespace lockstep
