#include "lockstep/core/error.h"
#include "lockstep/data/check/check_parts.h"
#include "lockstep/data/cifar.h"
#include "lockstep/data/mnist.h"
#include "lockstep/formats/cifar.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

/// Takes the name out of a message that begins with it.
BadFile bad_file(const fs::path& path, const std::string& message) {
  const std::string start = path.string() + ": ";
  const bool named = message.compare(0, start.size(), start) == 0;
  return {path.string(), named ? message.substr(start.size()) : message};
}

/// Counts what was read into the report.
void add_part(SetReport& report, bool train, const InMemoryImages& set) {
  PartReport part{train ? "train" : "test", set.size(), {}};
  part.per_class.resize(static_cast<std::size_t>(set.classes()));
  for (std::int64_t i = 0; i < set.size(); ++i) {
    ++part.per_class[static_cast<std::size_t>(set.label(i))];
  }
  report.parts.push_back(std::move(part));
  report.smallest = ImageSize{set.shape().width, set.shape().height};
  report.largest = report.smallest;
}

/// Looks at CIFAR's files one by one, as reading a part ends at its first bad one.
std::vector<BadFile> bad_cifar_files(const fs::path& directory, bool train, bool hundred) {
  std::vector<std::string> names{train ? "train.bin" : "test.bin"};
  if (!hundred && train) {
    names.clear();
    for (const char* number : {"1", "2", "3", "4", "5"}) {
      names.push_back(std::string("data_batch_") + number + ".bin");
    }
  } else if (!hundred) {
    names = {"test_batch.bin"};
  }
  const fs::path inner = directory / (hundred ? "cifar-100-binary" : "cifar-10-batches-bin");
  std::vector<BadFile> bad;
  for (const auto& name : names) {
    const std::vector<fs::path> file{(fs::exists(inner) ? inner : directory) / name};
    try {
      read_cifar(file, hundred ? CifarVariant::kCifar100 : CifarVariant::kCifar10);
    } catch (const DataError& error) {
      bad.push_back(bad_file(file[0], error.what()));
    }
  }
  return bad;
}

}  // namespace

void check_mnist(SetReport& report, bool fashion) {
  for (const bool train : {true, false}) {
    try {
      const auto read = fashion ? fashion_mnist : mnist;
      add_part(report, train, read(report.directory, train));
    } catch (const DataError& error) {
      const std::string message = error.what();
      const auto colon = message.find(": ");
      report.bad.push_back(bad_file(message.substr(0, colon), message));
    }
  }
}

void check_cifar(SetReport& report, bool hundred) {
  for (const bool train : {true, false}) {
    try {
      add_part(report, train, (hundred ? cifar100 : cifar10)(report.directory, train));
    } catch (const DataError& error) {
      auto bad = bad_cifar_files(report.directory, train, hundred);
      if (bad.empty()) bad.push_back(bad_file(report.directory, error.what()));
      report.bad.insert(report.bad.end(), bad.begin(), bad.end());
    }
  }
}

}  // namespace lockstep::data
