#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <utility>

namespace infini_train::autograd {

/// Weight gradients (W) that a backward pass put off, so that a schedule can run them later than the input gradients
/// (B): zero bubble pipeline parallelism (arXiv:2401.10241). Each entry holds just what its GEMM needs. A pipeline
/// keeps one queue for each (chunk, micro-batch) in flight.
class WeightGradQueue {
 public:
    void Push(std::function<void()> compute) { pending_.push_back(std::move(compute)); }
    /// Runs and drops all entries, first in first out.
    void Run();
    size_t size() const { return pending_.size(); }

 private:
    std::deque<std::function<void()>> pending_;
};

}  // namespace infini_train::autograd
