// Convolutions of oneDNN as one XLA custom call: values, gradient of the images, gradient of the kernel. Below, the
// loops over time of an LSTM as another, and group normalization as a third.
//
// Images are [batch, height, width, channels], kernels [height, width, channels, outputs], float32 or bfloat16; the
// gradient of a kernel is always float32. The batch is divided among the threads of XLA's own pool, and each part is
// computed by one thread, so that OpenMP, with which oneDNN is built, never starts a pool of its own.

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
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
    // Shared by all convolutions of the thread, each of which writes them before it reads them.
    thread_local std::vector<char> own_kernel, scratchpad;
    const bool reordered = preferred_ != given_;
    memory given(given_, Engine(), kernel), own = reordered ? AtLeast(preferred_, own_kernel) : given;
    memory images(x_, Engine(), x), results(y_, Engine(), y), scratch = AtLeast(scratch_desc_, scratchpad);
    if (reordered && kind_ != kOfKernel) reorder_.execute(stream, given, own);
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
        if (reordered) reorder_.execute(stream, own, given);
    }
    stream.wait();
  }

 private:
  static memory AtLeast(const memory::desc& description, std::vector<char>& buffer) {
    if (buffer.size() < description.get_size()) buffer.resize(description.get_size());
    return memory(description, Engine(), buffer.data());
  }

  // Prepares the layout of the kernel that the primitive prefers.
  template <typename Description>
  void Keep(const Description& description, const memory::desc& preferred) {
    preferred_ = preferred;
    scratch_desc_ = description.scratchpad_desc();
    if (preferred_ == given_) return;
    bool back = kind_ == kOfKernel;
    reorder_ = dnnl::reorder({Engine(), back ? preferred_ : given_, Engine(), back ? given_ : preferred_});
  }

  Kind kind_;
  memory::desc x_, y_, given_, preferred_, scratch_desc_;
  dnnl::primitive primitive_;
  dnnl::reorder reorder_;
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

// ------------------------------------------------------------------------------------------------ recurrences

#ifdef __AVX512F__
constexpr int kLanes = 16, kVectors = 4;
#else
constexpr int kLanes = 8, kVectors = 2;
#endif
constexpr int64_t kPanel = kLanes * kVectors, kRows = 6;
typedef float Vector __attribute__((vector_size(4 * kLanes), may_alias));

// out [R, kPanel] = a [R, depth] @ panel [depth, kPanel]; the sums stay in registers.
template <int R>
void MultiplyRows(const float* a, int64_t depth, const Vector* panel, Vector* out, int64_t stride) {
  Vector sums[R][kVectors] = {};
  for (int64_t k = 0; k < depth; ++k, panel += kVectors) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Vector factor = a[r * depth + k] - Vector{};
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[r][v] += factor * panel[v];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) out[r * stride + v] = sums[r][v];
  }
}

// The recurrent weights, packed once for all time steps: kPanel columns after the other, padded with zeros.
class Panels {
 public:
  // Of a matrix [depth, columns], or of the transpose of one [columns, depth].
  Panels(const float* matrix, int64_t depth, int64_t columns, bool transposed)
      : depth_(depth), stride((columns + kPanel - 1) / kPanel * kVectors), packed_(depth * stride) {
    auto* packed = reinterpret_cast<float*>(packed_.data());
    constexpr int64_t kTile = 16;
    for (int64_t first = 0; first < depth; first += kTile) {
      const int64_t end = std::min(first + kTile, depth);
      for (int64_t column = 0; column < (transposed ? columns : 0); ++column) {
        float* to = packed + column / kPanel * kPanel * depth + column % kPanel;
        for (int64_t k = first; k < end; ++k) to[k * kPanel] = matrix[column * depth + k];
      }
      for (int64_t k = first; k < (transposed ? first : end); ++k) {
        for (int64_t column = 0; column < columns; column += kPanel) {
          std::copy_n(matrix + k * columns + column, std::min(kPanel, columns - column),
                      packed + column * depth + k * kPanel);
        }
      }
    }
  }

  // out [rows, stride vectors] = a [rows, depth] @ matrix; a row's sums do not depend on the number of rows.
  void Multiply(const float* a, int64_t rows, Vector* out) const {
    for (int64_t column = 0; column < stride; column += kVectors) {
      for (int64_t row = 0; row < rows; row += kRows) {
        const float* from = a + row * depth_;
        const Vector* panel = &packed_[column * depth_];
        Vector* to = out + row * stride + column;
        switch (std::min(kRows, rows - row)) {
          case 1: MultiplyRows<1>(from, depth_, panel, to, stride); break;
          case 2: MultiplyRows<2>(from, depth_, panel, to, stride); break;
          case 3: MultiplyRows<3>(from, depth_, panel, to, stride); break;
          case 4: MultiplyRows<4>(from, depth_, panel, to, stride); break;
          case 5: MultiplyRows<5>(from, depth_, panel, to, stride); break;
          default: MultiplyRows<6>(from, depth_, panel, to, stride);
        }
      }
    }
  }

 private:
  const int64_t depth_;

 public:
  const int64_t stride;

 private:
  std::vector<Vector> packed_;
};

// The rational function by which XLA approximates tanh, within 4 units in the last place.
inline float Tanh(float x) {
  constexpr float kMost = 7.90531110763549805f;
  const float y = x > kMost ? kMost : x < -kMost ? -kMost : x, s = y * y;
  float p = 2.00018790482477e-13f - 2.76076847742355e-16f * s;
  p = -8.60467152213735e-11f + p * s, p = 5.12229709037114e-08f + p * s, p = 1.48572235717979e-05f + p * s;
  p = 6.37261928875436e-04f + p * s, p = 4.89352455891786e-03f + p * s;
  float q = 1.18534705686654e-04f + 1.19825839466702e-06f * s;
  q = 2.26843463243900e-03f + q * s, q = 4.89352518554385e-03f + q * s;
  return y * p / q;
}

inline float Sigmoid(float x) { return 0.5f + 0.5f * Tanh(0.5f * x); }

// The recurrences of one client: T time steps of B rows, H hidden units, gates i, g, f, o side by side in a row.
struct Recurrence {
  int64_t length, batch, hidden;

  // driven [T, B, 4 H], w_h [H, 4 H], bias [4 H] -> h [T, B, H]; if `gates` is not null, also the factors of the
  // gradient: gates [T, B, 4 H], cell [T, B, H], forget [T, B, H].
  void Forward(const float* driven, const float* w_h, const float* bias, int64_t first, int64_t rows, float* h,
               float* gates, float* cell, float* forget) const {
    const Panels panels(w_h, hidden, 4 * hidden, false);
    std::vector<Vector> sums(rows * panels.stride);
    std::vector<float> c(rows * hidden), ignored(gates ? 0 : 6 * hidden);
    for (int64_t t = 0; t < length; ++t) {
      const int64_t at = (t * batch + first) * hidden;
      if (t) panels.Multiply(h + at - batch * hidden, rows, sums.data());
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t own = at + row * hidden;
        const float *x = driven + 4 * own, *s = reinterpret_cast<float*>(&sums[row * panels.stride]);
        float *state = &c[row * hidden], *out = h + own, *to = gates ? gates + 4 * own : ignored.data();
        float* to_cell = gates ? cell + own : ignored.data() + 4 * hidden;
        float* f_out = gates ? forget + own : ignored.data() + 5 * hidden;
#pragma omp simd
        for (int64_t u = 0; u < hidden; ++u) {
          const int64_t ig = u, gg = u + hidden, fg = u + 2 * hidden, og = u + 3 * hidden;
          const float i = Sigmoid(x[ig] + s[ig] + bias[ig]), g = Tanh(x[gg] + s[gg] + bias[gg]);
          const float f = Sigmoid(x[fg] + s[fg] + bias[fg]), o = Sigmoid(x[og] + s[og] + bias[og]);
          const float before = state[u], after = f * before + i * g, t = Tanh(after);
          state[u] = after;
          out[u] = o * t;
          to[ig] = g * i * (1 - i), to[gg] = i * (1 - g * g), to[fg] = before * f * (1 - f), to[og] = t * o * (1 - o);
          to_cell[u] = o * (1 - t * t), f_out[u] = f;
        }
      }
    }
  }

  // The gradient of h [T, B, H], the factors and w_h -> dz [T, B, 4 H].
  void Backward(const float* dh, const float* gates, const float* cell, const float* forget, const float* w_h,
                int64_t first, int64_t rows, float* dz) const {
    const Panels panels(w_h, 4 * hidden, hidden, true);
    std::vector<Vector> carried(rows * panels.stride);
    std::vector<float> dc(rows * hidden);
    for (int64_t t = length - 1; t >= 0; --t) {
      const int64_t at = (t * batch + first) * hidden;
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t own = at + row * hidden;
        const float *d = dh + own, *s = reinterpret_cast<float*>(&carried[row * panels.stride]), *by = gates + 4 * own;
        const float *to_cell = cell + own, *f = forget + own;
        float *state = &dc[row * hidden], *z = dz + 4 * own;
#pragma omp simd
        for (int64_t u = 0; u < hidden; ++u) {
          const float total = d[u] + s[u], c = state[u] + total * to_cell[u];
          z[u] = c * by[u], z[u + hidden] = c * by[u + hidden], z[u + 2 * hidden] = c * by[u + 2 * hidden];
          z[u + 3 * hidden] = total * by[u + 3 * hidden];
          state[u] = c * f[u];
        }
      }
      if (t) panels.Multiply(dz + 4 * at, rows, carried.data());
    }
  }
};

// driven, w_h, bias -> h[, gates, cell, forget], or dh, gates, cell, forget, w_h -> dz; with leading axes for clients
// that have weights of their own. Clients, then rows of the batch, are divided among the threads.
ffi::Error Recur(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets results, int64_t threads) try {
  const bool forward = args.size() == 3, save = results.size() > 1;
  auto given = [&](size_t i) { return args.get<ffi::Buffer<ffi::F32>>(i).value(); };
  auto made = [&](size_t i) { return *results.get<ffi::Buffer<ffi::F32>>(i).value(); };
  const auto hidden_states = forward ? made(0) : given(0);
  auto shape = hidden_states.dimensions();
  const size_t rank = shape.size();
  const Recurrence r{shape[rank - 3], shape[rank - 2], shape[rank - 1]};
  const int64_t each = r.length * r.batch * r.hidden, weights = 4 * r.hidden * r.hidden;
  if (!each || !hidden_states.element_count()) return ffi::Error::Success();
  const int64_t clients = hidden_states.element_count() / each;
  // A part of fewer rows reads the weights as often as a larger one.
  const int64_t parts = std::clamp<int64_t>(threads / clients, 1, std::max<int64_t>(r.batch / kRows, 1));
  std::make_shared<Tasks>(clients * parts, [&](int64_t task) {
    const int64_t k = task / parts, first = r.batch * (task % parts) / parts;
    const int64_t rows = r.batch * (task % parts + 1) / parts - first;
    auto in = [&](size_t i, int64_t size) { return given(i).typed_data() + k * size; };
    auto out = [&](size_t i, int64_t size) { return made(i).typed_data() + k * size; };
    if (!forward) {
      r.Backward(in(0, each), in(1, 4 * each), in(2, each), in(3, each), in(4, weights), first, rows, out(0, 4 * each));
    } else if (save) {
      r.Forward(in(0, 4 * each), in(1, weights), in(2, 4 * r.hidden), first, rows, out(0, each), out(1, 4 * each),
                out(2, each), out(3, each));
    } else {
      r.Forward(in(0, 4 * each), in(1, weights), in(2, 4 * r.hidden), first, rows, out(0, each), nullptr, nullptr,
                nullptr);
    }
  })->Run(pool);
  return ffi::Error::Success();
} catch (const std::exception& error) {
  return ffi::Error::Internal(error.what());
}

// --------------------------------------------------------------------------------------- group normalization

// One image [positions, channels]: y = a x + b (+ add), then perhaps ReLU, and its gradients.
class GroupNorm {
 public:
  GroupNorm(int64_t positions, int64_t channels, int64_t groups, float epsilon, bool relu)
      : size_(positions * channels), channels_(channels), each_(channels / groups), epsilon_(epsilon), relu_(relu) {
    // Positions whose channels are summed side by side, so that few channels fill vectors, too.
    int64_t repeat = 1;
    while (repeat * channels < kColumns && positions % (2 * repeat) == 0) repeat *= 2;
    width_ = repeat * channels;
  }

  void Forward(const float* x, const float* scale, const float* bias, const float* add, float* y) const {
    std::vector<float> sums(2 * width_), factors(2 * width_);
    float *s = sums.data(), *q = s + width_, *a = factors.data(), *b = a + width_;
    for (int64_t i = 0; i < size_; i += width_) {
#pragma omp simd
      for (int64_t j = 0; j < width_; ++j) s[j] += x[i + j], q[j] += x[i + j] * x[i + j];
    }
    Fold(s), Fold(q);
    for (int64_t first = 0; first < channels_; first += each_) {
      const auto [mean, inverse] = Moments(s + first, q + first);
      for (int64_t c = first; c < first + each_; ++c) a[c] = scale[c] * inverse, b[c] = bias[c] - mean * a[c];
    }
    Repeat(a), Repeat(b);
    const float least = relu_ ? 0 : -std::numeric_limits<float>::infinity();
    for (int64_t i = 0; i < size_; i += width_) {
      if (add) {
#pragma omp simd
        for (int64_t j = 0; j < width_; ++j) y[i + j] = AtLeast(x[i + j] * a[j] + b[j] + add[i + j], least);
      } else {
#pragma omp simd
        for (int64_t j = 0; j < width_; ++j) y[i + j] = AtLeast(x[i + j] * a[j] + b[j], least);
      }
    }
  }

  // With t = dy where y > 0: dx, the image's share of dscale and dbias, and t as the gradient of what is added.
  void Backward(const float* dy, const float* x, const float* y, const float* scale, float* dx, float* dscale,
                float* dbias, float* dadd) const {
    std::vector<float> sums(4 * width_), factors(3 * width_);
    float *s = sums.data(), *q = s + width_, *st = q + width_, *sx = st + width_;
    float *u = factors.data(), *v = u + width_, *w = v + width_;
    const float least = relu_ ? 0 : -std::numeric_limits<float>::infinity();
    for (int64_t i = 0; i < size_; i += width_) {
#pragma omp simd
      for (int64_t j = 0; j < width_; ++j) {
        const float d = dy[i + j], t = y[i + j] > least ? d : 0, value = x[i + j];
        s[j] += value, q[j] += value * value, st[j] += t, sx[j] += t * value;
      }
    }
    Fold(s), Fold(q), Fold(st), Fold(sx);
    for (int64_t first = 0; first < channels_; first += each_) {
      const auto [mean, inverse] = Moments(s + first, q + first);
      double total = 0, along = 0;  // of g = scale t, and of g times the normalized x
      for (int64_t c = first; c < first + each_; ++c) {
        dbias[c] = st[c], dscale[c] = inverse * (sx[c] - mean * st[c]);
        total += scale[c] * dbias[c], along += scale[c] * dscale[c];
      }
      const float per_x = -inverse * inverse * static_cast<float>(along / Count());
      for (int64_t c = first; c < first + each_; ++c) {
        u[c] = inverse * scale[c], v[c] = per_x, w[c] = -inverse * static_cast<float>(total / Count()) - per_x * mean;
      }
    }
    Repeat(u), Repeat(v), Repeat(w);
    const auto write = [&](auto adds) {
      for (int64_t i = 0; i < size_; i += width_) {
#pragma omp simd
        for (int64_t j = 0; j < width_; ++j) {
          const float d = dy[i + j], t = y[i + j] > least ? d : 0;
          dx[i + j] = t * u[j] + (x[i + j] * v[j] + w[j]);
          if constexpr (adds) dadd[i + j] = t;
        }
      }
    };
    dadd ? write(std::true_type()) : write(std::false_type());
  }

 private:
  static constexpr int64_t kColumns = 256;

  // Not a number stays one.
  static float AtLeast(float value, float least) { return value < least ? least : value; }

  double Count() const { return static_cast<double>(size_ / channels_ * each_); }

  // Adds the columns of each channel up.
  void Fold(float* columns) const {
    for (int64_t j = channels_; j < width_; j += channels_) {
#pragma omp simd
      for (int64_t c = 0; c < channels_; ++c) columns[c] += columns[j + c];
    }
  }

  void Repeat(float* values) const {
    for (int64_t j = channels_; j < width_; j += channels_) std::copy_n(values, channels_, values + j);
  }

  // (mean, 1 / sqrt(variance + epsilon)) of a group from its channels' sums of x and x^2.
  std::pair<float, float> Moments(const float* s, const float* q) const {
    double sum = 0, squares = 0;
    for (int64_t c = 0; c < each_; ++c) sum += s[c], squares += q[c];
    const double mean = sum / Count(), variance = std::max(squares / Count() - mean * mean, 0.0);
    return {static_cast<float>(mean), static_cast<float>(1 / std::sqrt(variance + epsilon_))};
  }

  const int64_t size_, channels_, each_;
  const float epsilon_;
  const bool relu_;
  int64_t width_;
};

// x, scale, bias[, add] -> y, or dy, x, y, scale -> dx, dscale, dbias[, dadd]; with leading axes for clients that have
// parameters of their own. Images are divided among the threads.
ffi::Error Normalize(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets results, int64_t groups,
                     float epsilon, bool relu, int64_t threads) try {
  const bool forward = results.size() == 1;
  auto given = [&](size_t i) { return args.get<ffi::Buffer<ffi::F32>>(i).value(); };
  auto made = [&](size_t i) { return (*results.get<ffi::Buffer<ffi::F32>>(i).value()).typed_data(); };
  auto shape = given(0).dimensions();
  const int64_t rank = shape.size(), batch = shape[rank - 3], channels = shape[rank - 1];
  const GroupNorm norm(shape[rank - 2], channels, groups, epsilon, relu);
  const int64_t each = shape[rank - 2] * channels, images = each ? given(0).element_count() / each : 0;
  if (!images) return ffi::Error::Success();
  const int64_t parts = std::clamp<int64_t>(threads, 1, images);
  std::vector<float> shares(forward ? 0 : 2 * images * channels);
  std::make_shared<Tasks>(parts, [&](int64_t part) {
    for (int64_t i = images * part / parts; i < images * (part + 1) / parts; ++i) {
      const int64_t client = i / batch * channels;
      auto in = [&](size_t k) { return given(k).typed_data() + i * each; };
      if (forward) {
        norm.Forward(in(0), given(1).typed_data() + client, given(2).typed_data() + client,
                     args.size() > 3 ? in(3) : nullptr, made(0) + i * each);
      } else {
        float* share = &shares[2 * i * channels];
        norm.Backward(in(0), in(1), in(2), given(3).typed_data() + client, made(0) + i * each, share, share + channels,
                      results.size() > 3 ? made(3) + i * each : nullptr);
      }
    }
  })->Run(pool);
  // The gradients of the parameters are sums over the images in their order, whichever thread computes which.
  for (size_t k : {1, 2}) {
    if (!forward) std::fill_n(made(k), images / batch * channels, 0.0f);
    for (int64_t i = 0; i < (forward ? 0 : images); ++i) {
      const float* share = &shares[(2 * i + k - 1) * channels];
      for (int64_t c = 0; c < channels; ++c) made(k)[i / batch * channels + c] += share[c];
    }
  }
  return ffi::Error::Success();
} catch (const std::exception& error) {
  return ffi::Error::Internal(error.what());
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

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    FedwinRecur, Recur,
    ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().RemainingArgs().RemainingRets().Attr<int64_t>("threads"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(FedwinNormalize, Normalize,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attr<int64_t>("groups")
                                  .Attr<float>("epsilon")
                                  .Attr<bool>("relu")
                                  .Attr<int64_t>("threads"));
