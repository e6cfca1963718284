#include "lockstep/data/download/fetch_set.h"

#include <array>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/fetch/archive.h"
#include "lockstep/formats/output_file.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

Download from_mirror(Download file, const std::string& mirror) {
  if (mirror.empty()) return file;
  file.addresses = {mirror + (mirror.back() == '/' ? "" : "/") + file.name};
  return file;
}

bool is_unpacked(const fs::path& folder) {
  if (!fs::exists(fs::symlink_status(folder))) return false;
  const auto fault = checksum_list_fault(folder);
  if (!fault) return true;
  throw DataError(
      concat(folder.string(), ": already exists, but ", *fault, "; move it away and fetch again"));
}

void unpack(const fs::path& archive, const fs::path& folder) {
  AtomicDirectory fresh(folder);
  extract_archive(archive, fresh.path(), {}, folder.filename());
  write_checksum_list(fresh.path());
  fresh.commit();
}

FetchedFile fetch_archive(const Download& file, const fs::path& directory, const fs::path& folder,
    const DownloadOptions& options) {
  if (is_unpacked(folder)) return {file.name, file.bytes, false};
  const bool downloaded = download(file, directory, options);
  unpack(directory / file.name, folder);
  if (downloaded) fs::remove(directory / file.name);
  return {file.name, file.bytes, downloaded};
}

struct Pin {
  std::uint64_t bytes;
  const char* sha256;
};

/// Makes a set of the four IDX files, which lie in each of the folders.
KnownSet idx_set(const std::string& name, const std::vector<std::string>& folders,
    const std::array<Pin, 4>& pins) {
  constexpr std::array kNames{"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz",
      "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"};
  KnownSet set{name, {}, ""};
  for (std::size_t i = 0; i < pins.size(); ++i) {
    Download& file = set.files.emplace_back(Download{kNames[i], {}, pins[i].bytes, pins[i].sha256});
    for (const auto& folder : folders) file.addresses.push_back(folder + file.name);
  }
  return set;
}

KnownSet cifar(const std::string& digits, const std::string& folder, const Pin& pin) {
  const std::string file = "cifar-" + digits + "-binary.tar.gz";
  const std::string address = "https://www.cs.toronto.edu/~kriz/" + file;
  return {"cifar" + digits, {{file, {address}, pin.bytes, pin.sha256}}, folder};
}

}  // namespace

std::vector<FetchedFile> fetch_set(const KnownSet& set, const fs::path& directory,
    const std::string& mirror, const DownloadOptions& options) {
  std::vector<FetchedFile> fetched;
  for (const Download& file : set.files) {
    const Download wanted = from_mirror(file, mirror);
    if (set.archive_folder.empty()) {
      fetched.push_back({file.name, file.bytes, download(wanted, directory, options)});
    } else {
      fetched.push_back(fetch_archive(wanted, directory, directory / set.archive_folder, options));
    }
  }
  return fetched;
}

// Sizes and SHA-256 are those that TensorFlow Datasets publishes (its tensorflow_datasets/
// url_checksums/{mnist,fashion_mnist,cifar10,cifar100}.txt); Burn, gomlx and torch-rb publish the
// same ones. Those of Fashion-MNIST were found again from Debian's dataset-fashion-mnist: its
// files with the name and time of the original's gzip header have these hashes.
const std::vector<KnownSet>& known_sets() {
  static const std::vector<KnownSet> kAll{
      idx_set("mnist",
          {"https://storage.googleapis.com/cvdf-datasets/mnist/",
              "https://ossci-datasets.s3.amazonaws.com/mnist/"},
          {{{9'912'422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"},
              {28'881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"},
              {1'648'877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"},
              {4'542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"}}}),
      idx_set("fashion-mnist",
          {"https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
              "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"},
          {{{26'421'880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"},
              {29'515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"},
              {4'422'102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"},
              {5'148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"}}}),
      cifar("10", "cifar-10-batches-bin",
          {170'052'171, "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"}),
      cifar("100", "cifar-100-binary",
          {168'513'733, "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"})};
  return kAll;
}

const KnownSet& known_set(const std::string& name) {
  std::vector<std::string> names;
  for (const KnownSet& set : known_sets()) {
    if (set.name == name) return set;
    names.push_back(set.name);
  }
  check(name != "imagenet" && name != "images", "data fetch: ", name,
      " cannot be fetched: its owners ask each user to agree to their terms (image-net.org). Put "
      "its JPEG files into DIR/train/CLASS and DIR/val/CLASS, and name it images:DIR");
  throw InvalidArgument(
      concat("data fetch: there is no set ", name, "; there are ", joined(names)));
}

}  // namespace lockstep::data
