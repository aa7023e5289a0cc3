// Convolutions of oneDNN as one XLA custom call: values, gradient of the images, gradient of the kernel.
//
// Images are [batch, height, width, channels], kernels [height, width, channels, outputs], float32 or bfloat16; the
// gradient of a kernel is always float32. The batch is divided among the threads of XLA's own pool, and each part is
// computed by one thread, so that OpenMP, with which oneDNN is built, never starts a pool of its own.

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "oneapi/dnnl/dnnl.hpp"
#include "xla/ffi/api/ffi.h"

namespace {

namespace ffi = xla::ffi;
using dnnl::memory;
using Sizes = std::vector<int64_t>;

enum Kind : int64_t { kValues, kOfInput, kOfKernel };

// Height, width and channels of the images x and y, height and width of the window, and where it moves.
struct Geometry {
  Kind kind;
  memory::data_type type;
  Sizes x, y, window, strides, dilation, low, high;

  bool operator<(const Geometry& other) const {
    auto key = [](const Geometry& g) {
      return std::tie(g.kind, g.type, g.x, g.y, g.window, g.strides, g.dilation, g.low, g.high);
    };
    return key(*this) < key(other);
  }
};

const dnnl::engine& Engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

// A oneDNN primitive for a given number of images, with the memory that it works in. Serves one thread.
class Convolution {
 public:
  Convolution(const Geometry& g, int64_t batch) : kind_(g.kind) {
    auto images = [&](const Sizes& size) {
      return memory::desc({batch, size[2], size[0], size[1]}, g.type, memory::format_tag::nhwc);
    };
    x_ = images(g.x), y_ = images(g.y);
    memory::dims window = {g.y[2], g.x[2], g.window[0], g.window[1]};
    auto type = kind_ == kOfKernel ? memory::data_type::f32 : g.type;
    memory::desc any(window, type, memory::format_tag::any), forward_any(window, g.type, memory::format_tag::any);
    given_ = memory::desc(window, type, memory::format_tag::hwio);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const auto direct = dnnl::algorithm::convolution_direct;
    dnnl::convolution_forward::primitive_desc forward(Engine(), dnnl::prop_kind::forward_training, direct, x_,
                                                      forward_any, y_, g.strides, g.dilation, g.low, g.high, attributes);
    if (kind_ == kValues) {
      Keep(forward, forward.weights_desc());
      primitive_ = dnnl::convolution_forward(forward);
    } else if (kind_ == kOfInput) {
      dnnl::convolution_backward_data::primitive_desc backward(Engine(), direct, x_, any, y_, g.strides, g.dilation,
                                                               g.low, g.high, forward, attributes);
      Keep(backward, backward.weights_desc());
      primitive_ = dnnl::convolution_backward_data(backward);
    } else {
      dnnl::convolution_backward_weights::primitive_desc backward(Engine(), direct, x_, any, y_, g.strides, g.dilation,
                                                                  g.low, g.high, forward, attributes);
      Keep(backward, backward.diff_weights_desc());
      primitive_ = dnnl::convolution_backward_weights(backward);
    }
  }

  // Reads two of x, kernel and y, and writes the third.
  void Run(void* x, void* kernel, void* y) {
    dnnl::stream stream(Engine());
    memory given(given_, Engine(), kernel), own = own_.empty() ? given : memory(preferred_, Engine(), own_.data());
    memory images(x_, Engine(), x), results(y_, Engine(), y), scratch(scratch_desc_, Engine(), scratch_.data());
    if (!own_.empty() && kind_ != kOfKernel) reorder_.execute(stream, given, own);
    switch (kind_) {
      case kValues:
        primitive_.execute(stream, {{DNNL_ARG_SRC, images}, {DNNL_ARG_WEIGHTS, own}, {DNNL_ARG_DST, results},
                                    {DNNL_ARG_SCRATCHPAD, scratch}});
        break;
      case kOfInput:
        primitive_.execute(stream, {{DNNL_ARG_DIFF_SRC, images}, {DNNL_ARG_WEIGHTS, own}, {DNNL_ARG_DIFF_DST, results},
                                    {DNNL_ARG_SCRATCHPAD, scratch}});
        break;
      case kOfKernel:
        primitive_.execute(stream, {{DNNL_ARG_SRC, images}, {DNNL_ARG_DIFF_WEIGHTS, own}, {DNNL_ARG_DIFF_DST, results},
                                    {DNNL_ARG_SCRATCHPAD, scratch}});
        if (!own_.empty()) reorder_.execute(stream, own, given);
    }
    stream.wait();
  }

 private:
  // Prepares the layout of the kernel that the primitive prefers, and its scratchpad.
  template <typename Description>
  void Keep(const Description& description, const memory::desc& preferred) {
    preferred_ = preferred;
    scratch_desc_ = description.scratchpad_desc();
    scratch_.resize(scratch_desc_.get_size());
    if (preferred_ == given_) return;
    own_.resize(preferred_.get_size());
    bool back = kind_ == kOfKernel;
    reorder_ = dnnl::reorder({Engine(), back ? preferred_ : given_, Engine(), back ? given_ : preferred_});
  }

  Kind kind_;
  memory::desc x_, y_, given_, preferred_, scratch_desc_;
  dnnl::primitive primitive_;
  dnnl::reorder reorder_;
  std::vector<char> own_, scratch_;
};

Convolution& ThreadLocal(const Geometry& geometry, int64_t batch) {
  thread_local std::map<std::pair<Geometry, int64_t>, std::unique_ptr<Convolution>> cache;
  auto& convolution = cache[{geometry, batch}];
  if (!convolution) convolution = std::make_unique<Convolution>(geometry, batch);
  return *convolution;
}

// Tasks that the calling thread shares with those of a pool. It waits only for tasks that others have started, so that
// a pool whose threads are all busy, or wait here themselves, is no deadlock.
class Tasks : public std::enable_shared_from_this<Tasks> {
 public:
  Tasks(int64_t count, std::function<void(int64_t)> run) : count_(count), run_(std::move(run)) {}

  void Run(ffi::ThreadPool& pool) {
    for (int64_t i = 1; i < count_; ++i) pool.Schedule([self = shared_from_this()] { self->Work(); });
    Work();
    std::unique_lock<std::mutex> lock(mutex_);
    finished_.wait(lock, [this] { return done_ == count_; });
    if (!error_.empty()) throw std::runtime_error(error_);
  }

 private:
  void Work() {
    int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    for (int64_t i; (i = next_++) < count_;) {
      std::string error;
      try {
        run_(i);
      } catch (const std::exception& exception) {
        error = exception.what();
      }
      std::lock_guard<std::mutex> lock(mutex_);
      if (!error.empty()) error_ = error;
      if (++done_ == count_) finished_.notify_all();
    }
    omp_set_num_threads(threads);
  }

  const int64_t count_;
  const std::function<void(int64_t)> run_;
  std::atomic<int64_t> next_{0};
  int64_t done_ = 0;
  std::string error_;
  std::mutex mutex_;
  std::condition_variable finished_;
};

Sizes Pair(ffi::Span<const int64_t> values, size_t first) { return {values[first], values[first + 1]}; }

// a, b -> out is x, kernel -> y for values; y, kernel -> x for of_input; x, y -> kernel for of_kernel.
// `window` holds strides, dilation - 1, padding (top, left, bottom, right).
ffi::Error Convolve(ffi::ThreadPool pool, ffi::AnyBuffer a, ffi::AnyBuffer b, ffi::Result<ffi::AnyBuffer> out,
                    int64_t kind, ffi::Span<const int64_t> window, int64_t threads) try {
  auto first = a.dimensions(), second = b.dimensions(), third = out->dimensions();
  auto x = kind == kOfInput ? third : first, y = kind == kValues ? third : kind == kOfInput ? first : second;
  auto kernel = kind == kOfKernel ? third : second;
  bool half = a.element_type() == ffi::DataType::BF16;
  Geometry g{static_cast<Kind>(kind), half ? memory::data_type::bf16 : memory::data_type::f32, {x[1], x[2], x[3]},
             {y[1], y[2], y[3]}, {kernel[0], kernel[1]}, Pair(window, 0), Pair(window, 2), Pair(window, 4), Pair(window, 6)};

  auto* pa = static_cast<char*>(a.untyped_data());
  auto* pb = static_cast<char*>(b.untyped_data());
  auto* result = static_cast<char*>(out->untyped_data());
  const int64_t item = half ? 2 : 4, batch = x[0], parts = std::clamp<int64_t>(threads, 1, batch);
  const int64_t x_bytes = x[1] * x[2] * x[3] * item, y_bytes = y[1] * y[2] * y[3] * item;
  const int64_t weights = kernel[0] * kernel[1] * kernel[2] * kernel[3];
  // The gradient of the kernel is a sum over the parts, in their order whichever thread computes which.
  std::vector<float> sums(kind == kOfKernel ? (parts - 1) * weights : 0);
  std::make_shared<Tasks>(parts, [&](int64_t i) {
    const int64_t begin = batch * i / parts, end = batch * (i + 1) / parts;
    auto& convolution = ThreadLocal(g, end - begin);
    if (kind == kValues) {
      convolution.Run(pa + begin * x_bytes, pb, result + begin * y_bytes);
    } else if (kind == kOfInput) {
      convolution.Run(result + begin * x_bytes, pb, pa + begin * y_bytes);
    } else {
      void* sum = i ? static_cast<void*>(sums.data() + (i - 1) * weights) : result;
      convolution.Run(pa + begin * x_bytes, sum, pb + begin * y_bytes);
    }
  })->Run(pool);
  auto* total = reinterpret_cast<float*>(result);
  for (size_t i = 0; i < sums.size(); ++i) total[i % weights] += sums[i];
  return ffi::Error::Success();
} catch (const std::exception& error) {
  return ffi::Error::Internal(std::string("oneDNN: ") + error.what());
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(FedwinConvolve, Convolve,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<int64_t>("kind")
                                  .Attr<ffi::Span<const int64_t>>("window")
                                  .Attr<int64_t>("threads"));
