#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bench/study/study_of.h"
#include "bench/study/study_options.h"

/// What a second place and a second node give to DDP: ResNet18 on CIFAR-100, ten epochs, on one
/// place, two of one node by two launchers, and two nodes.
namespace lockstep::bench::ddp_scaling {

inline constexpr const char* kRunSeconds = "run_seconds";    ///< of ten epochs
inline constexpr const char* kLaterEpoch = "epoch_seconds";  ///< one of all but the first
/// Of ten epochs, each with an evaluation and a checkpoint after it.
inline constexpr const char* kWholeSeconds = "whole_seconds";

/// What starts torchrun on each of several nodes.
inline constexpr const char* kHostsTorchrun = "hosts-torchrun";

/// A point of the grid.
struct Point {
  int nodes = 1;
  int places = 1;                    ///< on all nodes, each a rank
  std::string started_by = "train";  ///< train: one place; run, torchrun; hosts: run on each of two
                                     ///< nodes; kHostsTorchrun
  std::string link = "none";         ///< between nodes: none, a rate, or real
  int pixels = 0;                    ///< height and width of the images

  /// Returns what it is: `2 places on 2 nodes`.
  std::string name() const;
  /// Returns what starts it: `lockstep run`.
  std::string launcher() const;
};

using Cell = Measured<Point>;
using Cells = std::vector<Cell>;

/// Makes the study. Its samples have the values `run_seconds`, `first_epoch_seconds`,
/// `epoch_seconds`, `epoch_share` (below 1: the times are extrapolated from that part of an epoch),
/// `trained_seconds` (what was really trained), `samples_per_s`, `train_loss`; of the evaluations
/// `evaluation_seconds` (one of the study's test set), `evaluated_images` (what it follows from),
/// `checkpoint_seconds` (for which training waits after an epoch), `between_seconds` (all of both
/// that the run really had), `whole_seconds`.
Study make_study(const StudyOptions& options);

/// Draws a set in CIFAR-100's form into the bench's folder, unless one was named: then it throws
/// DataError or InvalidArgument when that is not there.
void prepare(const StudyOptions& options, const std::filesystem::path& output);

/// Lists the grid: the study's four cells, four places on two nodes also by `lockstep run` and, to
/// tell the network's share from that of the number of places, two places on two nodes.
std::vector<Point> grid(const StudyOptions& options);

/// Returns the set to train on, as `lockstep train --data` takes it.
std::string training_set(const StudyOptions& options);

StudyCell cell_of(const Point& point, const StudyOptions& options);

/// Reads the values of a run of two epochs or more from its summary.json and metrics.jsonl.
///
/// Ten whole epochs are the first, which includes starting, and nine like the mean of the others.
/// Where the run's epochs were shorter than CIFAR-100's, they are extrapolated by their rate,
/// and so is an evaluation of fewer images than CIFAR-100's test set has. A checkpoint takes what
/// lies between two evaluations and is not the epoch. Another summary is a DataError.
SampleValues values_of(const std::filesystem::path& run);

inline constexpr int kStudyEpochs = 10;
inline constexpr int kStudyBatch = 128;  ///< images a step on each place
inline constexpr int kStudyPixels = 224;
inline constexpr int kStudyImages = 50000;  ///< CIFAR-100's training set
inline constexpr int kStudyTestImages = 10000;
inline constexpr int kQuickImages = 2048;      ///< enough for the quick grid's steps of four places
inline constexpr int kQuickTestImages = 1024;  ///< two batches on each of four places

/// Returns the published seconds of ten epochs; nothing where the study has no such cell.
std::optional<double> published_seconds(int nodes, int places, const std::string& started_by);

/// Returns the steps of the study's ten epochs on this many places.
std::int64_t study_steps(int places);

/// Returns the seconds that the gradients of all steps take over a node's link if nothing hides
/// them: in a ring each link carries 2 (n - 1) / n times the gradients of n places, each step.
double seconds_on_link(int places, double bits_per_second);

/// Finds a cell; nullptr if there is none.
const Cell* find(const Cells& cells, int nodes, int places, const std::string& started_by);

/// Estimates how many times as fast as one place a cell is; nothing for one place.
std::optional<Estimate> speed_up(const Cells& cells, const Cell& cell);

/// Returns how many times as fast as one GPU the published run is; nothing where there is none.
std::optional<double> published_speed_up(const Cell& cell);

/// Predicts the seconds of ten epochs from those of one place: an equal share of its work for each
/// place, and the gradients over the link while backward goes on. Nothing for one place and for
/// links of unknown rate.
std::optional<double> predicted_seconds(const Cells& cells, const Cell& cell);

/// Tables of run times, of speed-ups and of epochs.
std::vector<page::Table> tables(const Cells& cells);

/// Figures of run times, and of speed-ups beside the published ones.
std::vector<plot::Figure> figures(const Cells& cells);

/// Answers what a second place gave on one node and on two, and how sure that is; remarks on
/// another launcher and the network. Only of cells whose places had cores of their own.
page::Conclusion conclusion(const Cells& cells);

}  // namespace lockstep::bench::ddp_scaling
