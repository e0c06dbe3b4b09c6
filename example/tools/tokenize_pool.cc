#include "example/tools/tokenize_pool.h"

#include <utility>

#include "example/tools/tokenize_json.h"

namespace infini_train {
namespace {

std::vector<EncodedPiece> EncodePieces(const data::Tokenizer& tokenizer, const std::string& json_field,
                                       const std::vector<TextPiece>& pieces) {
    std::vector<EncodedPiece> encoded;
    encoded.reserve(pieces.size());
    for (const TextPiece& piece : pieces) {
        const bool is_json = !piece.json_where.empty();
        encoded.push_back(
            {.tokens = tokenizer.Encode(is_json ? JsonText(piece.text, json_field, piece.json_where) : piece.text),
             .begins_document = piece.begins_document,
             .is_validation = piece.is_validation});
    }
    return encoded;
}

}  // namespace

EncoderPool::EncoderPool(const data::Tokenizer& tokenizer, const std::string& json_field, int num_threads)
    : tokenizer_(&tokenizer), json_field_(json_field) {
    for (int thread = 0; thread < num_threads; ++thread) {
        threads_.emplace_back([this] { Work(); });
    }
}

EncoderPool::~EncoderPool() {
    {
        const std::lock_guard lock(mutex_);
        tasks_.clear();
        is_stopping_ = true;
    }
    has_work_.notify_all();
    for (std::thread& thread : threads_) {
        thread.join();
    }
}

std::future<std::vector<EncodedPiece>> EncoderPool::Encode(std::vector<TextPiece> pieces) {
    Task task([this, pieces = std::move(pieces)] { return EncodePieces(*tokenizer_, json_field_, pieces); });
    std::future<std::vector<EncodedPiece>> result = task.get_future();
    {
        const std::lock_guard lock(mutex_);
        tasks_.push_back(std::move(task));
    }
    has_work_.notify_one();
    return result;
}

void EncoderPool::Work() {
    for (;;) {
        std::unique_lock lock(mutex_);
        has_work_.wait(lock, [this] { return is_stopping_ || !tasks_.empty(); });
        if (is_stopping_) {
            return;
        }
        Task task = std::move(tasks_.front());
        tasks_.pop_front();
        lock.unlock();
        task();
    }
}

}  // namespace infini_train
