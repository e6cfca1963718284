#include "lockstep/data/download/known_sets.h"

#include "lockstep/core/error.h"

namespace lockstep::data {
namespace {

// Sizes and SHA-256 are those that TensorFlow Datasets publishes (its tensorflow_datasets/
// url_checksums/{mnist,fashion_mnist,cifar10,cifar100}.txt); Burn, gomlx and torch-rb publish the
// same ones. Those of Fashion-MNIST were found again from Debian's dataset-fashion-mnist: its
// files with the name and time of the original's gzip header have these hashes.

/// Makes the entries of the four IDX files.
std::vector<Download> idx_files(
    const std::vector<std::string>& folders, const std::vector<Download>& pins) {
  std::vector<Download> files = pins;
  for (Download& file : files) {
    for (const auto& folder : folders) file.addresses.push_back(folder + file.name);
  }
  return files;
}

KnownSet mnist() {
  return {
      "mnist",
      idx_files(
          {"https://storage.googleapis.com/cvdf-datasets/mnist/",
           "https://ossci-datasets.s3.amazonaws.com/mnist/"},
          {{"train-images-idx3-ubyte.gz",
            {},
            9'912'422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"},
           {"train-labels-idx1-ubyte.gz",
            {},
            28'881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"},
           {"t10k-images-idx3-ubyte.gz",
            {},
            1'648'877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"},
           {"t10k-labels-idx1-ubyte.gz",
            {},
            4'542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"}}),
      ""};
}

KnownSet fashion_mnist() {
  return {
      "fashion-mnist",
      idx_files(
          {"https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
           "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"},
          {{"train-images-idx3-ubyte.gz",
            {},
            26'421'880,
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"},
           {"train-labels-idx1-ubyte.gz",
            {},
            29'515,
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"},
           {"t10k-images-idx3-ubyte.gz",
            {},
            4'422'102,
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"},
           {"t10k-labels-idx1-ubyte.gz",
            {},
            5'148,
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"}}),
      ""};
}

KnownSet cifar(const std::string& name, const std::string& folder, const Download& archive) {
  Download file = archive;
  file.addresses = {"https://www.cs.toronto.edu/~kriz/" + file.name};
  return {name, {file}, folder};
}

KnownSet cifar10() {
  return cifar(
      "cifar10", "cifar-10-batches-bin",
      {"cifar-10-binary.tar.gz",
       {},
       170'052'171,
       "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"});
}

KnownSet cifar100() {
  return cifar(
      "cifar100", "cifar-100-binary",
      {"cifar-100-binary.tar.gz",
       {},
       168'513'733,
       "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"});
}

}  // namespace

const std::vector<KnownSet>& known_sets() {
  static const std::vector<KnownSet> kAll{mnist(), fashion_mnist(), cifar10(), cifar100()};
  return kAll;
}

const KnownSet& known_set(const std::string& name) {
  std::string names;
  for (const KnownSet& set : known_sets()) {
    if (set.name == name) return set;
    names += (names.empty() ? "" : ", ") + set.name;
  }
  check(
      name != "imagenet" && name != "images", "data fetch: ", name,
      " cannot be fetched: its owners ask each user to agree to their terms (image-net.org). Put "
      "its JPEG files into DIR/train/CLASS and DIR/val/CLASS, and name it images:DIR");
  throw InvalidArgument(concat("data fetch: there is no set ", name, "; there are ", names));
}

}  // namespace lockstep::data
