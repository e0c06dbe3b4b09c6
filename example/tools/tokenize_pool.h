#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "example/tools/tokenize_reader.h"
#include "infini_train/include/data/tokenizer.h"

namespace infini_train {

struct EncodedPiece {
    std::vector<int32_t> tokens = {};
    bool begins_document = false;
    bool is_validation = false;
};

/// Threads that encode pieces. Which thread takes which makes no difference to the tokens.
class EncoderPool {
 public:
    /// json_field: where the text of a line of JSON is. The tokenizer must outlive the pool.
    EncoderPool(const data::Tokenizer& tokenizer, const std::string& json_field, int num_threads);
    EncoderPool(const EncoderPool&) = delete;
    EncoderPool& operator=(const EncoderPool&) = delete;
    /// Waits for what the threads are at; what none has begun with is dropped.
    ~EncoderPool();

    /// The future has what they are encoded to, in their order, or the Error of the first that cannot be.
    std::future<std::vector<EncodedPiece>> Encode(std::vector<TextPiece> pieces);

 private:
    using Task = std::packaged_task<std::vector<EncodedPiece>()>;

    void Work();

    const data::Tokenizer* tokenizer_;
    std::string json_field_;
    std::mutex mutex_;
    std::condition_variable has_work_;  // or is stopping
    std::deque<Task> tasks_;
    bool is_stopping_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace infini_train
