#pragma once

#include "example/common/flags.h"
#include "example/common/model.h"
#include "example/common/pipeline_setup.h"
#include "infini_train/include/checkpoint/training_state.h"
#include "infini_train/include/data/token_dataset.h"
#include "infini_train/include/data/tokenizer.h"
#include "infini_train/include/nn/parallel/pp/memory_prediction.h"

namespace infini_train {

/// All that the ranks of a run share; nobody changes it.
struct RunPlan {
    const ProgramOptions* options = nullptr;
    const ModelSpec* model = nullptr;
    const PipelineSetup* setup = nullptr;
    const nn::parallel::MemoryPrediction* prediction = nullptr;
    const data::TokenDataset* train = nullptr;         // null: no training
    const data::TokenDataset* validation = nullptr;    // null: none
    const data::Tokenizer* tokenizer = nullptr;        // null: no text is written
    const checkpoint::TrainingState* start = nullptr;  // of the checkpoint that the training goes on from; null: none
};

}  // namespace infini_train
