#include "lockstep/train/input/datasets.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <initializer_list>
#include <set>
#include <sstream>
#include <vector>

#include "tests/data/image_files.h"
#include "tests/formats/cifar_bytes.h"
#include "tests/formats/idx_bytes.h"
#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/data/loader.h"
#include "lockstep/nn/models/model.h"
#include "lockstep/nn/named_state.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TrainOptions options_for(const testing::TemporaryFolder& root) {
  TrainOptions options;
  options.model = "resnet18-cifar";
  options.data = {"images", root.path().string()};
  return options;
}

TrainOptions mock_options(const std::string& model = "resnet18-cifar") {
  TrainOptions options;
  options.model = model;
  options.data = {"mock", ""};
  return options;
}

// A folder with these parts of ten cats and ten dogs each.
struct Folder : testing::TemporaryFolder {
  explicit Folder(std::initializer_list<const char*> parts) {
    for (const char* part : parts) testing::write_levels(*this, part);
  }
};

std::string refusal(const TrainOptions& options) {
  return testing::message_of<Error>([&] { load_datasets(options); });
}

std::multiset<std::string> names(const data::SamplesPointer& set) {
  std::multiset<std::string> result;
  for (std::int64_t i = 0; i < set->size(); ++i) result.insert(set->name(i));
  return result;
}

TEST(Datasets, OfFoldersAreTheirParts) {
  const Folder root{"train/", "val/", "test/"};
  const Datasets sets = load_datasets(options_for(root));
  EXPECT_EQ(sets.train->size(), 20);
  EXPECT_EQ(sets.train->shape(), (data::ImageShape{3, 32, 32}));
  ASSERT_NE(sets.validation, nullptr);
  EXPECT_THAT(sets.validation->name(0), HasSubstr("val"));
  EXPECT_THAT(sets.test->name(0), HasSubstr("test"));
  EXPECT_FALSE(sets.is_mere_copy);
}

TEST(Datasets, OfFoldersSayWhatTheyDoNotRead) {
  const Folder root{"train/", "test/"};
  EXPECT_EQ(load_datasets(options_for(root)).remark, "");
  const auto classes = std::filesystem::directory_iterator(root.file("train"));
  for (const char* name : {"1.webp", "2.WEBP", "3.jfif", ".hidden"})
    std::ofstream(classes->path() / name);
  EXPECT_THAT(load_datasets(options_for(root)).remark, HasSubstr(": 2 .webp, 1 .jfif"));
}

TEST(Datasets, OfFoldersHaveTheClassesThatAreNamed) {
  const testing::TemporaryFolder root;
  for (const char* part : {"train/", "test/"}) {
    testing::write_levels(root, part);
    testing::write_flat_png(root, std::string(part) + "eel/1.png", 9, 40);
  }
  TrainOptions options = options_for(root);
  EXPECT_EQ(model_outputs(options, load_datasets(options)), 3);
  options.data.classes = {"eel", "cat"};
  const Datasets sets = load_datasets(options);
  EXPECT_EQ(model_outputs(options, sets), 2);
  EXPECT_EQ(sets.train->size(), 11);
  EXPECT_EQ(sets.test->size(), 11);
  for (std::int64_t i = 0; i < 11; ++i) {
    const bool is_cat = sets.test->name(i).find("/cat/") != std::string::npos;
    EXPECT_EQ(sets.test->label(i), is_cat ? 1 : 0) << sets.test->name(i);
  }
  EXPECT_EQ(class_names_of(options.data), options.data.classes);
  options.data = {"mock", "", {"eel", "cat"}};
  EXPECT_EQ(
      refusal(options), "train: --classes chooses class folders, --data images:DIR; mock has none");
}

std::vector<float> numbers_in(std::string cell) {
  std::ranges::replace(cell, ',', ' ');
  std::istringstream text(cell);
  std::vector<float> numbers;
  for (float number = 0; text >> number;) numbers.push_back(number);
  return numbers;
}

// What docs/training.md says of a set: | `SET` | what is read | means | deviations |
data::Normalization normalization_on_page(const std::string& set) {
  std::ifstream page(std::string(LOCKSTEP_SOURCE_DIR) + "/docs/training.md");
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| `" + set + "`")) continue;
    const auto cells = split(line, '|');
    return {.mean = numbers_in(cells.at(3)), .std = numbers_in(cells.at(4))};
  }
  return {};
}

TEST(Datasets, HaveTheMeansAndDeviationsOfThePage) {
  const Folder images{"train/", "test/"};
  const testing::TemporaryFolder digits, ten, hundred;
  for (const std::string part : {"train", "t10k"}) {
    digits.write(part + "-images-idx3-ubyte", testing::idx_bytes({1, 2, 2}, {0, 1, 2, 3}));
    digits.write(part + "-labels-idx1-ubyte", testing::idx_bytes({1}, {7}));
  }
  for (const char* file : {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4",
           "data_batch_5", "test_batch"})
    ten.write(std::string(file) + ".bin", testing::cifar_record({1}));
  for (const char* file : {"train.bin", "test.bin"})
    hundred.write(file, testing::cifar_record({1, 42}));
  struct Row {
    const char* set;
    DataSource data;
  };
  for (const Row& row :
      {Row{"mnist:DIR", {"mnist", digits.str()}}, Row{"cifar10:DIR", {"cifar10", ten.str()}},
          Row{"cifar100:DIR", {"cifar100", hundred.str()}},
          Row{"images:DIR", {"images", images.str()}}, Row{"mock", {"mock", ""}},
          Row{"mock:constant", {"mock", "constant"}}, Row{"mock:fresh", {"mock", "fresh"}}}) {
    TrainOptions options = mock_options();
    options.data = row.data;
    data::Normalization used = load_datasets(options).normalization;
    if (used.mean.empty()) used = {.mean = {0}, .std = {1}};
    const data::Normalization on_page = normalization_on_page(row.set);
    EXPECT_EQ(used.mean, on_page.mean) << row.set;
    EXPECT_EQ(used.std, on_page.std) << row.set;
  }
}

// Of all parts: what training leaves is for the images that are measured on.
TEST(Datasets, OfFoldersAreKeptWhereMemoryIsGivenForIt) {
  const Folder root{"train/", "val/"};
  TrainOptions options = options_for(root);
  const auto is_kept = [&](const data::SamplesPointer& set) {
    const auto batch = data::empty_batch(1, {.shape = set->shape()});
    set->read(std::vector<data::SampleKey>{{.index = 3}}, batch);
    std::filesystem::remove(set->name(3));
    bool is_there = true;
    try {
      set->read(std::vector<data::SampleKey>{{.index = 3}}, batch);
    } catch (const DataError&) {
      is_there = false;
    }
    testing::write_flat_png(root, set->name(3).substr(root.str().size() + 1), 4, 40);
    return is_there;
  };
  EXPECT_FALSE(is_kept(load_datasets(options).train));
  options.loading.cache_decoded = 40 * 40 * 3 + data::DecodedImages::kBytesBesidePixels;
  const Datasets one = load_datasets(options);
  EXPECT_TRUE(is_kept(one.train));
  EXPECT_FALSE(is_kept(one.test));
  options.loading.cache_decoded *= 2;
  const Datasets two = load_datasets(options);
  EXPECT_TRUE(is_kept(two.train));
  EXPECT_TRUE(is_kept(two.test));
}

TEST(Datasets, OfWhichNothingCanBeKeptRefuseToKeepIt) {
  const Folder root{"train/", "val/"};
  TrainOptions options = options_for(root);
  options.loading.cache_decoded = std::int64_t{1} << 50;
  EXPECT_THAT(refusal(options), HasSubstr("is more than the memory that there is"));
  options.loading.cache_decoded = 1;
  options.data = {"mock", ""};
  EXPECT_THAT(refusal(options), HasSubstr("--cache-decoded is for image files"));
  options.loading.cache_decoded = 0;
  options.loading.bad_images = BadImages::kSkip;
  EXPECT_THAT(refusal(options), HasSubstr("--bad-images skip is for image files"));
}

TEST(Datasets, OfTwoFoldersTestOnTheSecond) {
  const Folder root{"train/", "val/"};
  const Datasets sets = load_datasets(options_for(root));
  EXPECT_EQ(sets.validation, nullptr);
  EXPECT_THAT(sets.test->name(0), HasSubstr("val"));
}

TEST(Datasets, OfOneFolderMustBeSplit) {
  const Folder root{""};
  TrainOptions options = options_for(root);
  EXPECT_THAT(refusal(options), HasSubstr("has nothing to test on"));
  options.loading.val_split = 0.01;
  EXPECT_THAT(refusal(options), HasSubstr("leaves one side of the split"));
  options.loading.val_split = 0.2;
  const Datasets sets = load_datasets(options);
  EXPECT_EQ(sets.train->size(), 16);
  EXPECT_EQ(sets.test->size(), 4);
  EXPECT_EQ(sets.validation, sets.test) << "they choose the best epoch, and so test nothing";
  auto all = names(sets.train);
  all.merge(names(sets.test));
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 20U);
  EXPECT_EQ(names(load_datasets(options).test), names(sets.test));
  options.seed = 43;
  EXPECT_NE(names(load_datasets(options).test), names(sets.test));
}

TEST(Datasets, SplitOffAValidationPartWhereThereIsATest) {
  const Folder root{"train/", "test/"};
  TrainOptions options = options_for(root);
  options.loading.val_split = 0.1;
  options.repeat = 3;
  const Datasets sets = load_datasets(options);
  EXPECT_EQ(sets.train->size(), 3 * 18);
  EXPECT_EQ(sets.validation->size(), 2);
  EXPECT_EQ(sets.test->size(), 20);
  testing::write_levels(root, "val/");
  EXPECT_THAT(refusal(options), HasSubstr("--val-split is for a set without"));
}

TEST(Datasets, InMemoryAreAugmentedForTrainingOnly) {
  TrainOptions options = mock_options();
  EXPECT_TRUE(load_datasets(options).is_mere_copy);
  options.loading.augment = Augment::kTimm;
  const Datasets sets = load_datasets(options);
  EXPECT_FALSE(sets.is_mere_copy);
  const auto look = [](const data::SamplesPointer& set, std::int64_t epoch) {
    return Loader(set, {0, 1, 2, 3}, 4, {.seed = 1, .epoch = epoch}).begin()->input().clone();
  };
  EXPECT_FALSE(torch::equal(look(sets.train, 0), look(sets.train, 1)));
  EXPECT_TRUE(torch::equal(look(sets.test, 0), look(sets.test, 1)));
}

TEST(Datasets, InMemoryAreScaledToTheSizeAskedFor) {
  TrainOptions options = mock_options();
  options.loading.image_size = 48;
  const Datasets sets = load_datasets(options);
  EXPECT_EQ(sets.train->shape(), (data::ImageShape{3, 48, 48}));
  EXPECT_EQ(sets.test->shape(), (data::ImageShape{3, 48, 48}));
}

TEST(Datasets, MockImagesOfImageNetsModelsAreMadeInTheSizeAskedFor) {
  TrainOptions options = mock_options("resnet50");
  EXPECT_EQ(load_datasets(options).train->shape(), (data::ImageShape{3, 224, 224}));
  options.loading.image_size = 64;
  const Datasets sets = load_datasets(options);
  EXPECT_EQ(sets.train->shape(), (data::ImageShape{3, 64, 64}));
  EXPECT_TRUE(sets.is_mere_copy) << "nothing is scaled while steps are timed";
}

TEST(ModelClasses, AreThoseOfTheDataOrMore) {
  TrainOptions options;
  options.data = {"mock", ""};
  const Datasets sets = load_datasets(options);
  EXPECT_EQ(model_outputs(options, sets), 10);
  options.classes = 20;
  EXPECT_EQ(model_outputs(options, sets), 20);
  options.classes = 9;
  EXPECT_THROW(model_outputs(options, sets), InvalidArgument);
}

// A million images of this shape, which nobody reads.
class Shaped final : public data::Samples {
 public:
  explicit Shaped(data::ImageShape shape) : shape_(shape) {}
  std::int64_t size() const override { return 1'000'000; }
  std::int64_t classes() const override { return 10; }
  data::ImageShape shape() const override { return shape_; }
  std::string name(std::int64_t) const override { return ""; }
  void read(std::span<const data::SampleKey>, const Batch&) const override {}

 private:
  data::ImageShape shape_;
};

// Samples with an input of this type.
class Typed final : public data::Samples {
 public:
  explicit Typed(torch::ScalarType type) : type_(type) {}
  std::int64_t size() const override { return 8; }
  std::int64_t classes() const override { return 10; }
  data::ImageShape shape() const override { return {}; }
  std::vector<data::TensorForm> inputs() const override { return {{"x", {10}, type_}}; }
  std::string name(std::int64_t) const override { return ""; }
  void read(std::span<const data::SampleKey>, const Batch&) const override {}

 private:
  torch::ScalarType type_;
};

TEST(ModelClasses, InputsOfATypeThatOurNetsDoNotTakeAreRefused) {
  TrainOptions options;
  options.data = {"tensors", "x.npz"};
  const auto check_with = [&](const char* model, torch::ScalarType type) {
    options.model = model;
    check_model_fits(options, Typed(type), 10, 16'000'000'000);
  };
  EXPECT_NO_THROW(check_with("toy", torch::kFloat));
  EXPECT_NO_THROW(check_with("gpt2-nano", torch::kLong));
  EXPECT_NO_THROW(check_with("net.pt2", torch::kByte)) << "it says itself what it takes";
  EXPECT_EQ(testing::message_of<InvalidArgument>([&] { check_with("toy", torch::kByte); }),
      "train: toy takes float32, and the input of --data tensors is x [10] uint8; store it as "
      "float32, such as pixels / 255");
  EXPECT_EQ(testing::message_of<InvalidArgument>([&] { check_with("gpt2-nano", torch::kFloat); }),
      "train: gpt2-nano takes tokens, and the input of --data tensors is x [10] float; store it as "
      "int64");
}

TEST(ModelClasses, L1WhatVanishesOrHasNoRoomIsRefused) {
  TrainOptions options;
  options.model = "vgg11";
  const std::int64_t gigabytes = 16'000'000'000;
  const auto refusal = [&](data::ImageShape shape, std::int64_t classes) {
    return testing::message_of<InvalidArgument>(
        [&] { check_model_fits(options, Shaped(shape), classes, gigabytes); });
  };
  EXPECT_EQ(refusal({3, 64, 31}, 10),
      "train: vgg11 halves images until nothing is left of 64 x 31 pixels; give --image-size 32 or "
      "more");
  EXPECT_NO_THROW(check_model_fits(options, Shaped({3, 32, 32}), 10, gigabytes));
  EXPECT_EQ(refusal({3, 32, 32}, 2'000'000'000),
      "train: the last layer of vgg11 for 2000000000 classes, and a batch of 128, need at least "
      "66576001 MB, but there are 16000 MB of memory; give fewer --num-classes or a smaller "
      "--batch-size");
  EXPECT_EQ(refusal({1, 32, 32}, 10),
      "train: vgg11 takes images of 3 channels, and those of --data fashion-mnist have 1; take "
      "cifar10:DIR, cifar100:DIR, images:DIR or mock, whose images fit the model");
  options.model = "gpt2-nano";
  EXPECT_EQ(refusal({1, 28, 28}, 10),
      "train: gpt2-nano takes tokens, and --data fashion-mnist has images; take text:FILE or "
      "tokens:FILE");
  options.model = "vgg11";
  options.batch_size = 10'000'000;
  EXPECT_THAT(refusal({3, 224, 224}, 10), ::testing::HasSubstr("a batch of 1000000, need"));
  options = {};
  options.data = {"mock", ""};
  options.classes = 2'000'000'000;
  EXPECT_THROW(model_outputs(options, load_datasets(options)), InvalidArgument);
  EXPECT_GT(usable_memory(), 100'000'000);
}

// The catalogue says what the nets are, before one is made; language models have no layer alone
// that says it.
TEST(NetNeeds, AreThoseOfTheNets) {
  for (const std::string& name : nn::model_names()) {
    if (nn::net_needs(name).context > 0) continue;
    const auto state = nn::named_state(*nn::make_model(name, 3));
    std::int64_t features = 0, channels = 0;
    for (const auto& item : state) {
      if (item.value().dim() == 2) features = item.value().size(1);
      if (item.value().dim() == 4 && channels == 0) channels = item.value().size(1);
    }
    EXPECT_EQ(nn::net_needs(name).features, features) << name;
    EXPECT_EQ(nn::net_needs(name).channels, channels) << name;
  }
  EXPECT_EQ(nn::net_needs("vgg19-bn").least_side, 32);
  EXPECT_EQ(nn::net_needs("resnet50").least_side, 1);
}

TEST(Datasets, ThatDoNotFitTheFlagsAreRefused) {
  TrainOptions options;
  options.data = {"mock", ""};
  options.loading.augment = Augment::kTimm;
  EXPECT_THAT(refusal(options), HasSubstr("--augment timm changes colours"));
  for (const char* name : {"mnist", "cifar10", "cifar100", "images"}) {
    options.data = {name, ""};
    EXPECT_THAT(refusal(options), HasSubstr(std::string("--data ") + name + " needs a folder"));
  }
  options.data = {"imagenet", ""};
  EXPECT_THAT(refusal(options),
      HasSubstr("mock, tensors, tokens, text, or a set of --plugin, perhaps with a "
                "folder, such as cifar100:DIR: imagenet"));
}

TrainOptions options_of(const std::string& kind) {
  TrainOptions options;
  options.model = "resnet18";
  options.data = {"mock", kind};
  options.loading.image_size = 8;
  options.classes = 1000;
  return options;
}

std::vector<Batch> batches_of(const std::string& kind, const std::vector<std::int64_t>& indices,
    const LoaderOptions& options = {}) {
  std::vector<Batch> batches;
  for (auto& batch : Loader(load_datasets(options_of(kind)).train, indices, 3, options))
    batches.push_back(batch);
  return batches;
}

TEST(NoiseSamples, OfAConstantSetAreOneBatchWhateverWasDrawn) {
  const auto batches = batches_of("constant", {5, 1, 9, 2, 200, 7, 8});
  ASSERT_EQ(batches.size(), 3U);
  EXPECT_EQ(batches[0].input().sizes(), torch::IntArrayRef({3, 3, 8, 8}));
  EXPECT_TRUE(batches[1].input().is_same(batches[0].input()));  // not made again
  EXPECT_TRUE(torch::equal(batches[2].input(), batches[0].input().narrow(0, 0, 1)));
  EXPECT_FALSE(torch::equal(batches[0].input()[0], batches[0].input()[1]));
  for (const Batch& batch : batches) EXPECT_EQ(batch.target().abs().sum().item<int>(), 0);
}

TEST(NoiseSamples, OfAConstantSetAreTheSameAfterAResumeAndWithWorkers) {
  const std::vector<std::int64_t> indices{0, 1, 2, 3, 4, 5};
  const Batch all = batches_of("constant", indices).back();
  for (const LoaderOptions& options :
      {LoaderOptions{.first_batch = 1}, LoaderOptions{.epoch = 7, .workers = 2}}) {
    EXPECT_TRUE(torch::equal(batches_of("constant", indices, options).back().input(), all.input()));
  }
}

TEST(NoiseSamples, OfAFreshSetAreOthersInEveryPlaceAndEpoch) {
  const std::vector<std::int64_t> indices{0, 1, 2, 3, 4, 5};
  const auto first = batches_of("fresh", indices), again = batches_of("fresh", indices);
  const auto later = batches_of("fresh", indices, {.epoch = 1});
  EXPECT_TRUE(torch::equal(first[1].input(), again[1].input()));
  EXPECT_TRUE(torch::equal(first[1].target(), again[1].target()));
  EXPECT_FALSE(torch::equal(first[0].input(), first[1].input()));
  EXPECT_FALSE(torch::equal(first[1].input(), later[1].input()));
  EXPECT_FALSE(torch::equal(first[1].target(), later[1].target()));
}

TEST(NoiseSamples, HaveMeanZeroVarianceOneAndEveryClass) {
  const NoiseSamples noise({.size = 400, .classes = 4, .shape = {3, 8, 9}});
  std::vector<std::int64_t> indices(400), counts(4);
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<std::int64_t>(i);
  const Loader loader(std::make_shared<NoiseSamples>(noise), indices, 400);
  const Batch batch = *loader.begin();
  EXPECT_NEAR(batch.input().mean().item<double>(), 0, 0.01);  // 3 standard errors
  EXPECT_NEAR(batch.input().var().item<double>(), 1, 0.01);
  EXPECT_NEAR((batch.input() * batch.input().roll(1)).mean().item<double>(), 0, 0.015);
  for (int i = 0; i < 400; ++i)
    ++counts.at(static_cast<std::size_t>(batch.target()[i].item<std::int64_t>()));
  for (const std::int64_t count : counts) EXPECT_NEAR(static_cast<double>(count), 100, 40);
}

TEST(NoiseSamples, OfFewerPixelsThanAWordHaveThemAll) {
  const NoiseSamples noise({.size = 2, .shape = {1, 1, 3}});
  const Loader loader(std::make_shared<NoiseSamples>(noise), {0, 1}, 2);
  EXPECT_EQ((*loader.begin()).input().count_nonzero().item<int>(), 6);
}

TEST(NoiseSamples, AreRefusedWithWhatTheyHaveNot) {
  EXPECT_THAT(refusal(options_of("/some/folder")),
      HasSubstr("there are mock, mock:constant and mock:fresh, not mock:/some/folder"));
  TrainOptions options = options_of("fresh");
  options.loading.augment = Augment::kTimm;
  EXPECT_THAT(refusal(options), HasSubstr("--augment changes images, and mock:fresh has none"));
}

}  // namespace
}  // namespace lockstep
