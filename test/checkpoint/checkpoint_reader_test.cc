#include "infini_train/include/checkpoint/checkpoint_reader.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "infini_train/include/checkpoint/training_state.h"
#include "infini_train/include/common/str_cat.h"
#include "infini_train/include/optimizer/sgd.h"
#include "infini_train/src/checkpoint/manifest.h"
#include "test/checkpoint/llmc_files.h"
#include "test/checkpoint/toy_training.h"
#include "test/support/run_program.h"

namespace infini_train::checkpoint::test {
namespace {

using infini_train::test::ReadTextFile;
using infini_train::test::TemporaryFolder;
using infini_train::test::WriteTextFile;

/// The text with the first `from` replaced; it must be there.
std::string Replaced(std::string text, const std::string& from, const std::string& to) {
    EXPECT_NE(text.find(from), std::string::npos) << from;
    return text.replace(text.find(from), from.size(), to);
}

/// A run with the checkpoints of steps 1 and 2.
class CheckpointReaderTest : public testing::Test {
 protected:
    CheckpointReaderTest() {
        Alone([&](const ToyTraining& training) {
            const auto writer = training.MakeWriter(run_);
            EXPECT_EQ(training.Save(*writer, 1, 1).error, "");
            EXPECT_EQ(training.Save(*writer, 2, 2).error, "");
        });
    }

    void Change(const std::string& file, const std::string& from, const std::string& to) const {
        WriteTextFile(file, Replaced(ReadTextFile(file), from, to));
    }
    /// After changes to the files of step 2, a manifest that fits them.
    void RenewManifest() const {
        Manifest manifest = ReadManifest(newest_);
        for (ManifestFile& file : manifest.files) {
            file = Describe(newest_, file.name);
        }
        WriteTextFile(newest_ + "/manifest.json", ToJson(manifest));
    }

    TemporaryFolder folder_;
    std::string run_ = folder_.File("run");
    std::string newest_ = run_ + "/step_00000002";
    std::string older_ = run_ + "/step_00000001";
};

TEST_F(CheckpointReaderTest, FindsTheNewestOfARunAndAFolderByItself) {
    EXPECT_EQ(FindCheckpoint(run_), newest_);
    EXPECT_EQ(FindCheckpoint(run_ + "//"), newest_);
    EXPECT_EQ(FindCheckpoint(older_ + "/"), older_);
    std::filesystem::rename(older_, folder_.File("by another name"));
    EXPECT_EQ(FindCheckpoint(folder_.File("by another name")), folder_.File("by another name"));
}

TEST_F(CheckpointReaderTest, GoesByTheNumberOfTheStep) {
    Alone([&](const ToyTraining& training) {
        const auto writer = training.MakeWriter(run_);
        EXPECT_EQ(training.Save(*writer, 123456789, 3).error, "");  // more digits than the name has room for
        EXPECT_EQ(training.Save(*writer, 99999999, 3).error, "");
    });
    EXPECT_EQ(FindCheckpoint(run_), run_ + "/step_123456789");
}

TEST_F(CheckpointReaderTest, WhatIsNotCompleteIsNotFound) {
    std::filesystem::copy(older_, run_ + "/step_00000003.partial");
    std::filesystem::copy(older_, run_ + "/step_00000004.gone.partial");
    std::filesystem::copy(older_, run_ + "/step_5");
    std::filesystem::copy(older_, run_ + "/step_00000006");  // the manifest is of step 1
    std::filesystem::create_directory(run_ + "/step_00000007");
    WriteTextFile(run_ + "/step_00000008", "");
    EXPECT_EQ(FindCheckpoint(run_), newest_);
    std::filesystem::remove(newest_ + "/optimizer-00003-of-00004.safetensors");
    EXPECT_EQ(FindCheckpoint(run_), older_);
    std::filesystem::resize_file(older_ + "/model-00001-of-00004.safetensors", 100);
    ExpectRefusal([&] { FindCheckpoint(run_); },
                  {run_, "no complete checkpoint among 5", "step_00000008", "cannot open"});
    ExpectRefusal([&] { FindCheckpoint(older_); }, {"model-00001-of-00004.safetensors", "another size", "100 bytes"});
    ExpectRefusal([&] { FindCheckpoint(newest_); }, {"optimizer-00003-of-00004.safetensors", "cannot open"});
    ExpectRefusal([&] { FindCheckpoint(run_ + "/step_00000003.partial/"); }, {"never completed"});
}

TEST_F(CheckpointReaderTest, SaysWhatIsThereWhereThereIsNoCheckpoint) {
    ExpectRefusal([&] { FindCheckpoint(folder_.File("none")); }, {"none", "is not a folder"});
    ExpectRefusal([&] { FindCheckpoint(newest_ + "/config.json"); }, {"config.json", "is not a folder"});
    ExpectRefusal([&] { FindCheckpoint(""); }, {"is not a folder"});
    ExpectRefusal([&] { FindCheckpoint(folder_.File("")); }, {"has no checkpoint", "manifest.json"});
}

TEST_F(CheckpointReaderTest, RefusesAManifestThatItDidNotWrite) {
    const std::string path = newest_ + "/manifest.json";
    const std::string text = ReadTextFile(path);
    const auto expect_refused = [&](const std::string& changed, const std::vector<std::string>& parts) {
        WriteTextFile(path, changed);
        ExpectRefusal([&] { FindCheckpoint(newest_); }, parts);
        ExpectRefusal([&] { ReadTrainingState(newest_); }, parts);
        EXPECT_EQ(FindCheckpoint(run_), older_);
    };
    expect_refused("", {path, "not what a checkpoint has"});
    expect_refused("[]", {path, "not what a checkpoint has"});
    expect_refused(std::string(1 << 20, '['), {path, "not what a checkpoint has"});
    expect_refused(std::string((1 << 24) + 1, ' '), {path, "too large"});
    expect_refused(text.substr(0, text.size() - 1), {path, "was changed", StrCat("byte ", text.size() - 1)});
    expect_refused(text + " ", {path, "was changed"});
    expect_refused(Replaced(text, "\n  \"step\"", "\n  \"step\": 2,\n  \"step\""), {path, "was changed"});
    expect_refused(Replaced(text, "\"format\": 1", "\"format\": 2"), {path, "another version", "got 2, wanted 1"});
    expect_refused(Replaced(text, "\"step\": 2", "\"step\": 2.0"), {path, "was changed"});
    expect_refused(Replaced(text, "\"step\": 2", "\"step\": 18446744073709551615"), {path, "was changed"});
    expect_refused(Replaced(text, "\"config.json\"", "\"../config.json\""), {path, "\"../config.json\"", "bare names"});
    expect_refused(Replaced(text, "\"config.json\"", "\"/etc/passwd\""), {path, "\"/etc/passwd\"", "bare names"});
    expect_refused(Replaced(text, "\"config.json\"", "\"config\\u0000.json\""), {path, "bare names"});
    expect_refused(Replaced(text, "\"config.json\"", "\"zonfig.json\""), {path, "bare names, sorted"});
    expect_refused(Replaced(text, "\"xxh3\": \"", "\"xxh3\": \"0"), {path, "was changed"});
    expect_refused(Replaced(text, "\"trainer_state.json\"", "\"trainer_state_.json\""), {"trainer_state"});
    WriteTextFile(path, Replaced(text, "\"config.json\"", "\"bonfig.json\""));
    ExpectRefusal([&] { FindCheckpoint(newest_); }, {"bonfig.json", "cannot open"});
}

TEST_F(CheckpointReaderTest, RefusesATrainingStateThatItDidNotWrite) {
    const std::string path = newest_ + "/trainer_state.json";
    Change(path, "\"row\": 2", "\"row\": 3");
    ExpectRefusal([&] { ReadTrainingState(newest_); }, {path, "checksum"});
    ExpectRefusal([&] { FindCheckpoint(newest_); }, {path, "checksum"});
    RenewManifest();
    EXPECT_EQ(ReadTrainingState(newest_).position.row, 3);
    const std::string text = ReadTextFile(path);
    const auto expect_refused = [&](const std::string& from, const std::string& to, const std::string& part) {
        WriteTextFile(path, Replaced(text, from, to));
        RenewManifest();
        ExpectRefusal([&] { ReadTrainingState(newest_); }, {path, part});
    };
    expect_refused("\"row\": 3", "\"row\": -3", "position.row is negative");
    expect_refused("\"row\": 3", "\"row\": 1e2", "was changed");
    expect_refused("\"step\": 2", "\"step\": 3", "another step than the manifest");
    expect_refused("\"seed\": 18446744073709551615", "\"seed\": 18446744073709551616", "was changed");
    expect_refused("\"settings\": {", "\"settings\": {\n    \"a\": 1,", "not what a checkpoint has");
    expect_refused("\"seed\"", "\"sead\"", "not what a checkpoint has");
    expect_refused("\"format\": 1", "\"format\": 0", "another version");
}

TEST_F(CheckpointReaderTest, RanksVerifyEachFileOnce) {
    const size_t num_files = ReadManifest(newest_).files.size();
    for (const ManifestFile& file : ReadManifest(newest_).files) {
        const std::string path = newest_ + "/" + file.name;
        const std::string text = ReadTextFile(path);
        std::string changed = text;
        changed.back() = static_cast<char>(changed.back() ^ 1);
        WriteTextFile(path, changed);
        for (const int num_parts : {1, 3, static_cast<int>(num_files) + 1}) {
            int num_refusals = 0;
            for (int part = 0; part < num_parts; ++part) {
                try {
                    VerifyChecksums(newest_, part, num_parts);
                } catch (const Error& error) {
                    EXPECT_EQ(std::string(error.what()).find(path), 0u) << error.what();
                    ++num_refusals;
                }
            }
            EXPECT_EQ(num_refusals, 1) << path << " among " << num_parts;
        }
        WriteTextFile(path, text);
    }
    VerifyChecksums(newest_, 0, 1);
}

TEST_F(CheckpointReaderTest, LoadsTheMomentsAndTheStepWhateverPartOfTheModelARankHolds) {
    using Parameters = std::vector<size_t>;
    for (const Parameters& held : {Parameters{0, 1, 2, 3, 4, 5}, Parameters{4, 0}, Parameters{5}}) {
        comm::RunRanks({}, [&](const comm::Mesh& mesh) {
            const ToyTraining training(mesh, held);
            LoadMoments(newest_, training.chunks, *training.optimizer);
            EXPECT_EQ(training.optimizer->step(), 2);
            for (const optimizers::Moments& moments : training.optimizer->moments()) {
                for (size_t i = 0; i < held.size(); ++i) {
                    const std::string name = moments.name + "." + training.hf->parameters()[held[i]].name;
                    const Tensor& tensor = *moments.tensors[i];
                    EXPECT_EQ(tensor.ToVector<float>(), ToyValues(name, 2, tensor.num_elements())) << name;
                }
            }
        });
    }
}

TEST_F(CheckpointReaderTest, RefusesMomentsThatAreNotThoseOfTheOptimizer) {
    Alone([&](const ToyTraining& training) {
        const auto expect_refused = [&](const optimizers::Sgd::Options& options, const std::string& wanted) {
            optimizers::Sgd sgd(training.chunks[0]->Parameters(), options);
            ExpectRefusal([&] { LoadMoments(newest_, training.chunks, sgd); },
                          {newest_, "another optimizer", "got m, v, wanted " + wanted});
        };
        expect_refused({}, "none");
        expect_refused({.momentum = 0.9f}, "momentum");
        const auto load = [&](const std::vector<NamedShape>& parameters) {
            const std::vector<std::shared_ptr<nn::Module>> chunks = {
                std::make_shared<ToyModule>(parameters, MakeCpuDevice())};
            optimizers::AdamW adamw(chunks[0]->Parameters(), {});
            LoadMoments(newest_, chunks, adamw);
        };
        ExpectRefusal([&] { load({{.name = "h.2.a", .shape = {3, 4}}}); }, {newest_, "no tensor m.h.2.a"});
        ExpectRefusal(
            [&] {
                load({{.name = "h.1.a", .shape = {4, 3}}});
            },
            {"optimizer-00003-of-00004.safetensors", "m.h.1.a", "got [3, 4], wanted [4, 3]"});
    });
}

}  // namespace
}  // namespace infini_train::checkpoint::test
